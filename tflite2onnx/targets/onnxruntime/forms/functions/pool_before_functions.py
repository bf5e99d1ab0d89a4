"""Pools with less work.

`pool_before_functions`: functions of single elements move from the input of a MAX_POOL_2D to its
output.

    the maximum of f(x) = f(the maximum of x), for a function f that never falls

Each function then computes as many elements as the pool has outputs: a quarter for windows of 2x2
pixels. The results are the same bits where f rounds without falling. The functions are

- ELU, EXP, LOGISTIC, TANH;
- sums with constants, products with constants of at least 0, and sums of products: normalizations
  after an activation, which no convolution can absorb.

They move if

1. all tensors are float32, and nothing else reads the functions;
2. the constants have one element for each channel, or only one;
3. the pool has at most half as many elements as its input.

`average_zeros`: the average of one row and n - 1 rows of zeros is this row, divided by n. Streaming
networks of speech average the last n steps so: the layer pads the only step of a run. PAD and
AVERAGE_POOL_2D become MUL, also with a RESHAPE between them, if

1. all tensors are float32 and have known sizes;
2. the window has all n rows and one column, and the padded axis follows axes of one element.
"""

from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import are_fixed_floats, spread_over_channels
from tflite2onnx.passes.patterns.matching import Match, OneOf, Pattern, Through
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_like

_LEAST = 2  # elements of the input for each of the pool

_PRODUCT: Pattern = ("MUL", "x", "factors#")
_FUNCTION = OneOf(
    *((code, "x") for code in ("ELU", "EXP", "LOGISTIC", "TANH")),
    ("ADD", _PRODUCT, "offsets#"),
    ("ADD", "x", "offsets#"),
    _PRODUCT,
)


@rule(
    "functions that never fall, between a convolution and a pool",
    "MAX_POOL_2D, then the functions",
    ("MAX_POOL_2D", _FUNCTION),
)
def pool_before_functions(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    (pool, *functions), x, y = found.ops, found.x, found.output
    if x.elements < _LEAST * y.elements or any(f.outputs[0].sizes != x.sizes for f in functions):
        return "the pool must have at most half as many elements as its input"
    constants = [found.tensors[name] for name in ("factors#", "offsets#") if name in found.tensors]
    if not all(spread_over_channels(each, x).size for each in constants):
        return "the constants must have a number for each channel"
    if "factors#" in found.tensors and not (found.tensors["factors#"].values >= 0).all():
        return "the factors must not be negative"
    before, after = x, make_like(y, "pooled")
    ops = [replace(pool, inputs=(x,), outputs=(after,))]
    for op in reversed(functions):
        moved = op.with_inputs({before: after})
        before, after = op.outputs[0], y if op is functions[0] else make_like(y, op.code.lower())
        ops.append(replace(moved, outputs=(after,)))
    return ops


@rule(
    "average of one row and rows of zeros",
    "MUL",
    ("AVERAGE_POOL_2D", Through(("PAD", "x", "pads#"))),
)
def average_zeros(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y, rows, options = found.x, found.output, found.last.operand(0), found.last.options
    if not are_fixed_floats(x, y, rows):
        return "all tensors must be float32 and have known sizes"
    zeros = np.reshape(found.list_integers("pads#"), (-1, 2)).sum(axis=1)
    window, size = (options.filter_height, options.filter_width), 1 + int(zeros.sum())
    before = x.shape[: int(zeros.argmax()) + 1]
    if np.count_nonzero(zeros) != 1 or prod(before) != 1 or rows.shape[:2] != (1, size):
        return "one axis must be padded, after axes of one element"
    if window != (size, 1) or options.padding != "VALID" or x.elements != y.elements:
        return "the window must have all rows and one column"
    rw = Rewriter(found.last)
    row = rw.op("MUL", x, 1 / size, like=x, name="average", fused_activation_function="NONE")
    rw.reshape(row, output=y)
    return rw.ops
