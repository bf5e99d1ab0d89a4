"""Products of convolutions and dense layers take over what is added and multiplied behind them.

`fold_into_products`: ADD, SUB, MUL and DIV by constants behind a convolution or a dense layer go
into its constants.

    (x W + b) * m = x (W m) + b m
    (x W + b) / d = x (W / d) + b / d
    (x W + b) + c = x W + (b + c)

ONNX Runtime does this when it loads a convolution, but not for a dense layer: a cell of an LSTM
whose steps are spelled out has one node less of 14. The ONNX model is smaller in both cases. An
operator is folded if

1. its input is the output of CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, which applies no
   activation, and which no other operator reads; both outputs have one shape. After FULLY_CONNECTED
   a RESHAPE may stand between them: Keras splits heads of attention before it adds the bias;
2. all tensors are float32; filters and biases are constant;
3. the constant has one element for each output channel, or only one;
4. products with filters that are stored as float16 are float16, or they would take twice the
   bytes. The reciprocals of divisors are finite.

Products of filters are rounded once more, which changes a result by 1e-7 of the range.

`chain_products`: of the sum of two dense layers of one row, the second adds the result of the first
as its bias. Gemm adds any matrix of the shape of its result, so that the sum needs no node. A step
of an LSTM that is spelled out has such a sum. ADD is replaced if

1. its inputs are the outputs of FULLY_CONNECTED with constant float32 weights, of one row, and
   nothing else reads them;
2. neither applies an activation, and the second, which takes over the sum, has no bias.

If neither has a bias, an ADD of a constant to the sum is the bias of the first.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.graph import ABSENT, Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, Match, Named, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import make_like
from tflite2onnx.tensor import Array, Tensor

# The axis of the output channels of the filters.
_CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": -1, "FULLY_CONNECTED": 0}
_BIAS = 2  # the input
_MATRIX = 2  # axes
_PRODUCT = Named(
    "x",
    OneOf(
        *((code, "data", "weights#", ...) for code in _CHANNELS),
        ("RESHAPE", ("FULLY_CONNECTED", "data", "weights#", ...), ...),
    ),
)
_CODES = ("ADD", "DIV", "MUL", "SUB")
_FOLDED = Activated(OneOf(*((code, _PRODUCT, "constant#") for code in _CODES)))
_SECOND: Pattern = ("FULLY_CONNECTED", "b", "w#", None)
_CHAINED = Activated(
    OneOf(
        ("ADD", ("ADD", ("FULLY_CONNECTED", "a", "v#", None), _SECOND), "bias#"),
        ("ADD", ("FULLY_CONNECTED", "a", "v#", "p#?"), _SECOND),
    )
)


def _fold_constant(found: Match) -> tuple[Op, ...]:
    (op, *between, product), y = found.ops, found.last.outputs[0]
    weights, constant = found.tensors["weights#"], found.tensors["constant#"]
    bias = product.operand(_BIAS)
    operands = (*product.present, constant)
    if found.tensors["x"].sizes != y.sizes or not all(map(is_float, operands)):
        return ()
    channels = weights.shape[_CHANNELS[product.code]] if weights.shape else 0
    vector = spread_over_channels(constant, y, channels).astype(np.float32)
    if not vector.size or (bias is not ABSENT and not bias.has_data):
        return ()
    flat = make_like(product.outputs[0], op.code.lower()) if between else y
    whole = _combine_constants(op, product, weights, bias, vector, flat)
    if not whole:
        return ()
    moves = (replace(move, inputs=(flat, *move.inputs[1:]), outputs=(y,)) for move in between)
    return (whole, *moves)


def spread_over_channels(constant: Tensor, y: Tensor, channels: int) -> Array:
    """Return a constant as [C], no elements if it varies along another axis than the channels.

    The channels are the last axes of y.
    """
    axes = next((i for i in range(1, y.rank + 1) if prod(y.shape[-i:]) == channels), 0)
    if constant.rank > y.rank or not axes:
        return np.empty(0)
    data = constant.values.reshape(-1)
    if constant.elements == 1:
        return np.ascontiguousarray(np.broadcast_to(data, (channels,)))
    fits = constant.elements == channels and constant.shape[-axes:] == y.shape[-axes:]
    return data if fits else np.empty(0)


def _combine_constants(
    op: Op, product: Op, weights: Tensor, bias: Tensor, vector: Array, output: Tensor
) -> Op | None:
    """Return the product with a constant that is added or multiplied; condition 4 may fail."""
    data, old = weights.values, np.zeros(len(vector), np.float32)
    if bias is not ABSENT:
        old = bias.values.astype(np.float32).reshape(-1)
    if len(old) != len(vector):
        return None
    if op.code in ("DIV", "MUL"):
        if op.code == "DIV":
            vector = 1 / vector
            if not np.isfinite(vector).all():
                return None
        axis = _CHANNELS[product.code] % weights.rank
        shape = [-1 if i == axis else 1 for i in range(weights.rank)]
        scaled = np.asarray(data.astype(np.float32) * vector.reshape(shape), np.float32)
        with np.errstate(over="ignore"):
            stored = scaled.astype(data.dtype)
        if not np.array_equal(stored, scaled):
            return None
        weights = replace(weights, name=f"{weights.name}/scaled", data=stored)
        old = old * vector
    else:
        old = old + vector if op.code == "ADD" else old - vector
    x, y = product.inputs[0], op.outputs[0]
    biases: tuple[Tensor | None, ...] = (None,)
    if op.code in ("ADD", "SUB") or bias is not ABSENT:
        biases = (Tensor(f"{y.name}/bias", old.shape, y.dtype, np.asarray(old, np.float32)),)
    whole = replace(product, inputs=(x, weights, *biases), outputs=(output,))
    return whole.with_activation(op.activation)


def _chain_layers(found: Match) -> tuple[Op, ...]:
    (*_, first, second), y, bias = found.ops, found.last.outputs[0], found.tensors.get("bias#")
    layers = [op.outputs[0] for op in found.ops[1:]]
    weights = [*first.present[1:], *second.present[1:], *([bias] if bias else [])]
    if y.rank != _MATRIX or y.shape[0] != 1 or y.symbols or first is second:
        return ()
    if not all(map(is_float, weights)) or any(t.sizes != y.sizes for t in layers):
        return ()
    if bias:
        if bias.elements != y.elements:
            return ()
        outputs = (replace(first.outputs[0], name=f"{y.name}/first"),)
        first = replace(first, inputs=(*first.inputs[:_BIAS], bias), outputs=outputs)
    inputs = (*second.inputs[:_BIAS], first.outputs[0])
    last = replace(second, inputs=inputs, outputs=(y,))
    whole = last.with_activation(found.last.activation)
    return (first, whole) if bias else (whole,)


fold_into_products = Rules(
    Rule(
        "sums and products with constants behind convolutions and dense layers",
        "CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED",
        _FOLDED,
        _fold_constant,
    ),
)
chain_products = Rules(
    Rule("sums of dense layers of one row", "FULLY_CONNECTED", _CHAINED, _chain_layers)
)
