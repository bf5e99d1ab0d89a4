"""Replace Flex operators (TensorFlow operators, run by the Flex delegate) by TFLite operators.

TFLite's converter falls back on Flex operators for operators that TFLite lacks, but often only for
a dtype, a rank or a missing pattern.

1. An operator with a rule (`RULES`) that matches its inputs and attributes is replaced.
2. Custom operators of files from 2021 that are builtin operators now get the builtin name.
3. Other Flex operators stay custom operators; their options are the attributes of their NodeDef.
4. Operators with a registered class stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Model, Op, Options
from tflite2onnx.op import has_converter
from tflite2onnx.passes.flex import node_def
from tflite2onnx.passes.flex.names import EARLIER_NAMES, PREFIX
from tflite2onnx.passes.flex.rewrites import Rule
from tflite2onnx.passes.flex.rules import RULES
from tflite2onnx.reader import flexbuffer

_OTHER_FORM = (
    "TensorFlow operator {}, run by the Flex delegate, is converted, but not with these inputs and"
    " attributes{}: convert the original model to TFLite without SELECT_TF_OPS, or use {} in a form"
    " that TFLite has"
)


def translate_flex_operators(model: Model) -> Model:
    """Return the model with TFLite operators in place of Flex operators.

    Operators with a registered class stay as they are.
    """
    return model._replace(graphs=tuple(_translate_graph(graph) for graph in model.graphs))


def explain_unmatched(op: Op) -> str:
    """Return why an operator with a rule was not replaced, "" for operators without a rule."""
    name = op.code.removeprefix(PREFIX)
    if name not in RULES:
        return ""
    # Attributes with a capital are dtypes or numbers of inputs.
    shown = [f"{key}={value!r}" for key, value in op.options.items() if key[:1].islower()]
    return _OTHER_FORM.format(name, f" ({', '.join(shown)})" if shown else "", name)


def _is_foreign(op: Op) -> bool:
    return op.custom and (op.code.startswith(PREFIX) or op.code in EARLIER_NAMES)


def _translate_graph(graph: Graph) -> Graph:
    ops: list[Op] = []
    for op in graph.ops:
        if not _is_foreign(op):
            ops.append(op)
            continue
        if op.code in EARLIER_NAMES:
            new = replace(op, code=EARLIER_NAMES[op.code], custom=False, options=Options())
            ops.append(op if has_converter(op) else new)
            continue
        known = replace(op, options=Options(_read_attributes(op)))
        rule = RULES.get(op.code.removeprefix(PREFIX))
        ops += (_apply_rule(rule, known) if rule and not has_converter(op) else ()) or [known]
    return replace(graph, ops=tuple(ops))


def _apply_rule(rule: Rule, op: Op) -> Sequence[Op] | None:
    """Return the operators that replace one operator, None if the rule does not match."""
    try:
        with as_operator_error():
            return rule(op)
    except OperatorError:
        return None


def _read_attributes(op: Op) -> Mapping[str, Any]:
    """Return the attributes of the NodeDef, empty if the options have no valid NodeDef."""
    try:
        options = flexbuffer.decode(op.custom_options)
        _, raw = options
        return node_def.decode(raw.encode() if isinstance(raw, str) else raw).attributes
    except (TypeError, ValueError, AttributeError):
        return {}
