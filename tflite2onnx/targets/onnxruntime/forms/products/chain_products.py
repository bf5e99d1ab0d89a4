"""Sums of dense layers of one row need no node.

Of the sum of two dense layers of one row, the second adds the result of the first
as its bias, if it has none. Gemm adds any matrix of the shape of its result, so that the sum needs
no node. A step of an LSTM that is spelled out has such a sum. If neither has a bias, an ADD of a
constant to the sum is the bias of the first.
"""

from dataclasses import replace

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, Match, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import rule

_BIAS = 2  # the input
_MATRIX = 2  # axes
_SECOND: Pattern = ("FULLY_CONNECTED", "b", "w#", None)
_CHAINED = OneOf(
    ("ADD", ("ADD", ("FULLY_CONNECTED", "a", "v#", None), _SECOND), "bias#"),
    ("ADD", ("FULLY_CONNECTED", "a", "v#", "p#?"), _SECOND),
)


@rule("sums of dense layers of one row", "FULLY_CONNECTED", Activated(_CHAINED))
def chain_products(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    (*_, first, second), y, bias = found.ops, found.output, found.tensors.get("bias#")
    if y.rank != _MATRIX or y.shape[0] != 1 or y.symbols or first is second:
        return "the result must be one row of known size"
    if not all(map(is_float, found.tensors.values())) or (bias and bias.elements != y.elements):
        return "all tensors must be float32, and the bias must have a number for each feature"
    if any(op.outputs[0].sizes != y.sizes for op in found.ops):
        return "all tensors must have the shape of the result"
    if bias:
        inner = replace(first.outputs[0], name=f"{y.name}/first")
        first = replace(first, inputs=(*first.inputs[:_BIAS], bias), outputs=(inner,))
    whole = replace(second, inputs=(*second.inputs[:_BIAS], first.outputs[0]), outputs=(y,))
    whole = whole.with_activation(found.last.activation)
    return [first, whole] if bias else [whole]
