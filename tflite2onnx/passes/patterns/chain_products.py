"""The sum of two dense layers of one row: the second adds the result of the first as its bias.

Gemm adds any matrix of the shape of its result, so that the sum needs no node. A step of an LSTM
that is spelled out has such a sum. ADD is replaced if

1. its inputs are the outputs of FULLY_CONNECTED with constant float32 weights, of one row, and
   nothing else reads them;
2. neither applies an activation, and the second, which takes over the sum, has no bias.

If neither has a bias, an ADD of a constant to the sum is the bias of the first.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, Match, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import Rule, Rules

_BIAS = 2  # the input
_MATRIX = 2  # axes
_SECOND: Pattern = ("FULLY_CONNECTED", "b", "w#", None)
_CHAINED = Activated(
    OneOf(
        ("ADD", ("ADD", ("FULLY_CONNECTED", "a", "v#", None), _SECOND), "bias#"),
        ("ADD", ("FULLY_CONNECTED", "a", "v#", "p#?"), _SECOND),
    )
)


def _chain_layers(found: Match) -> tuple[Op, ...]:
    """Return the layers; the second adds the result of the first. None if a layer does not fit."""
    (*_, first, second), y, bias = found.ops, found.last.outputs[0], found.tensors.get("bias#")
    layers = [op.outputs[0] for op in found.ops[1:]]
    weights = [*first.present[1:], *second.present[1:], *([bias] if bias else [])]
    if y.rank != _MATRIX or y.shape[0] != 1 or y.symbols or first is second:
        return ()
    if not all(map(is_float, weights)) or any(t.sizes != y.sizes for t in layers):
        return ()
    if not bias:
        made: tuple[Op, ...] = ()
    elif bias.elements == y.elements:
        name = f"{y.name}/first"
        outputs = (replace(first.outputs[0], name=name),)
        first = replace(first, inputs=(*first.inputs[:_BIAS], bias), outputs=outputs)
        made = (first,)
    else:
        return ()
    inputs = (*second.inputs[:_BIAS], first.outputs[0])
    last = replace(second, inputs=inputs, outputs=(y,))
    return *made, last.with_activation(found.last.activation)


chain_products = Rules(
    Rule("sums of dense layers of one row", "FULLY_CONNECTED", _CHAINED, _chain_layers)
)
