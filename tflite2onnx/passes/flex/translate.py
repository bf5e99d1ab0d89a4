"""Flex operators: those of TensorFlow, which TFLite runs by a delegate. TFLite to TFLite, first.

A converter falls back on them for what TFLite lacks, but as often for a type, a rank or a missing
pattern; then TFLite has an operator that means the same, and takes its place here. The rest stay
custom operators, with their NodeDef's attributes as options, to be converted like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tflite2onnx.errors import OperatorError, as_operator_error
from tflite2onnx.graph import Graph, Model, Op, Options
from tflite2onnx.op import has_converter
from tflite2onnx.passes.flex import node_def
from tflite2onnx.passes.flex.rewrites import Rule
from tflite2onnx.passes.flex.rules import RULES
from tflite2onnx.reader import flexbuffer

_PREFIX = "Flex"
# Operators that were custom ones before they were TFLite's own: files of 2021 have them. None had
# options but for the seeds of the random ones, which no kernel looked at.
_BEFORE = {
    "Atan2": "ATAN2",
    "Sign": "SIGN",
    "Multinomial": "MULTINOMIAL",
    "RandomStandardNormal": "RANDOM_STANDARD_NORMAL",
    "RandomUniform": "RANDOM_UNIFORM",
}
_OTHER_FORM = (
    "TensorFlow operator {}, run by the Flex delegate, is converted, but not with these inputs and"
    " attributes{}: convert the original model to TFLite without SELECT_TF_OPS, or use {} in a form"
    " that TFLite has"
)


def translate_flex_operators(model: Model) -> Model:
    """Return a model in which operators of TFLite's stand for those that mean the same.

    Operators with a registered class stay as they are.
    """
    if not any(_is_foreign(op) for graph in model.graphs for op in graph.ops):
        return model
    return model._replace(graphs=tuple(_translate_graph(graph) for graph in model.graphs))


def explain_untranslated(op: Op) -> str:
    """Return why an operator is left that is translated in other forms, "" of any other."""
    name = op.code.removeprefix(_PREFIX)
    if not op.custom or name == op.code or name not in RULES:
        return ""
    # What begins with a capital is a type, or how many inputs there are.
    told = [f"{key}={value!r}" for key, value in op.options.items() if key[:1].islower()]
    return _OTHER_FORM.format(name, f" ({', '.join(told)})" if told else "", name)


def _is_foreign(op: Op) -> bool:
    return op.custom and (op.code.startswith(_PREFIX) or op.code in _BEFORE)


def _translate_graph(graph: Graph) -> Graph:
    ops: list[Op] = []
    for op in graph.ops:
        if not _is_foreign(op):
            ops.append(op)
            continue
        if op.code in _BEFORE:
            new = replace(op, code=_BEFORE[op.code], custom=False, options=Options())
            ops.append(op if has_converter(op) else new)
            continue
        known = replace(op, options=Options(_attributes(op)))
        rule = RULES.get(op.code.removeprefix(_PREFIX))
        ops += (None if rule is None or has_converter(op) else _apply_rule(rule, known)) or [known]
    return replace(graph, ops=tuple(ops))


def _apply_rule(rule: Rule, op: Op) -> Sequence[Op] | None:
    """Return the operators that stand for one, None if there are no such or it makes no sense."""
    try:
        with as_operator_error():
            return rule(op)
    except OperatorError:
        return None


def _attributes(op: Op) -> Mapping[str, Any]:
    """Return the attributes of the NodeDef, none if there is no such thing."""
    try:
        options = flexbuffer.decode(op.custom_options)
        _, raw = options
        return node_def.decode(raw.encode() if isinstance(raw, str) else raw).attributes
    except (TypeError, ValueError, AttributeError):
        return {}
