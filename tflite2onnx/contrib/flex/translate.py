"""Replace Flex operators (TensorFlow operators, run by the Flex delegate) by TFLite operators.

TFLite's converter falls back on Flex operators for operators that TFLite lacks, but often only for
a dtype, a rank or a missing pattern.

1. An operator with a rule (`RULES`) that matches its inputs and attributes is replaced.
2. Custom operators that have another name, too, get it (`OTHER_NAMES`). Options that are seeds are
   left out: the kernels of custom operators ignored them.
3. Other Flex operators stay custom operators; their options are the attributes of their NodeDef.
4. Operators with a registered class stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tflite2onnx.contrib.flex import node_def
from tflite2onnx.contrib.flex.names import OTHER_CUSTOM_NAMES, OTHER_NAMES, PREFIX
from tflite2onnx.contrib.flex.rules import RULES
from tflite2onnx.custom_options import decode_flexbuffer
from tflite2onnx.operators import Op, OperatorError, Options
from tflite2onnx.rewriting import Model, as_operator_error, has_class

_OTHER_FORM = (
    "TensorFlow operator {}, run by the Flex delegate, is converted, but not with these inputs and"
    " attributes{}: convert the original model to TFLite without SELECT_TF_OPS, or use {} in a form"
    " that TFLite has"
)


def translate_flex_operators(model: Model) -> Model:
    """Return the model with TFLite operators in place of Flex operators."""
    return model._replace(graphs=tuple(graph.rewrite(_translate_op) for graph in model.graphs))


def explain_unmatched(op: Op) -> str:
    """Return why an operator with a rule was not replaced, "" for operators without a rule."""
    name = op.code.removeprefix(PREFIX)
    if not op.custom or name == op.code or name not in RULES:
        return ""
    # Attributes whose names begin with a capital are dtypes, or numbers of inputs.
    shown = [f"{key}={value!r}" for key, value in op.options.items() if key[:1].islower()]
    return _OTHER_FORM.format(name, f" ({', '.join(shown)})" if shown else "", name)


def _translate_op(op: Op) -> Sequence[Op]:
    if op.custom and op.code in OTHER_NAMES and not has_class(op):
        code, custom = OTHER_NAMES[op.code], op.code in OTHER_CUSTOM_NAMES
        options = {name: value for name, value in op.options.items() if name[:4] != "seed"}
        return [replace(op, code=code, custom=custom, options=Options(options))]
    if not op.custom or not op.code.startswith(PREFIX):
        return [op]
    op_read = replace(op, options=Options(_read_attributes(op)))
    rule = RULES.get(op.code.removeprefix(PREFIX))
    if rule is None or has_class(op):
        return [op_read]
    try:
        with as_operator_error():
            return rule(op_read) or [op_read]
    except OperatorError:
        return [op_read]


def _read_attributes(op: Op) -> Mapping[str, Any]:
    """Return the attributes of the NodeDef, empty if the options have no valid NodeDef."""
    try:
        with as_operator_error():
            _, raw = decode_flexbuffer(op.custom_options)
            return node_def.decode(raw.encode() if isinstance(raw, str) else raw)
    except OperatorError:
        return {}
