"""Products of convolutions and dense layers take over what is added and multiplied after them.

`fold_into_products`: constants after a convolution or a dense layer go into its constants.

    (x W + b) * m = x (W m) + b m, and (x W + b) / d
    (x W + b) + c = x W + (b + c), and (x W + b) - c

Runtimes do this when they load a convolution, but not for a dense layer: a cell of an LSTM
whose steps are spelled out has one node less of 14. The ONNX model is smaller in both cases. An
operator is folded if

1. CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED computes its input, of the same shape. After
   FULLY_CONNECTED may be a RESHAPE: Keras splits heads of attention before it adds the bias;
2. all tensors are float32; filters and biases are constant;
3. the constant varies along the output channels only, or not at all;
4. products with filters that are stored as float16 are float16, or they would take twice the
   bytes. The reciprocals of divisors are finite.

Products of filters are rounded once more, which changes a result by 1e-7 of the range.
"""

from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.op import find_operator
from tflite2onnx.passes.operands import LAYERS, is_float, spread_over_channels
from tflite2onnx.passes.patterns.matching import Activated, Match, Named, OneOf, Pattern, any_of
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_constant, make_like
from tflite2onnx.quantization.declarations import Product
from tflite2onnx.tensor import Array, Tensor

_LAYER = ("data", "weights#", "bias#?")
_PRODUCT: Pattern = OneOf(any_of(LAYERS, *_LAYER), ("RESHAPE", ("FULLY_CONNECTED", *_LAYER), ...))


@rule(
    "sums and products with constants after convolutions and dense layers",
    "CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED",
    Activated(any_of(("ADD", "DIV", "MUL", "SUB"), Named("x", _PRODUCT), "constant#")),
)
def fold_into_products(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    (op, *between, product), y = found.ops, found.output
    weights, bias = found.tensors["weights#"], found.tensors.get("bias#")
    if found.x.sizes != y.sizes or not all(map(is_float, found.tensors.values())):
        return "all tensors must be float32, and the product must have the shape of the result"
    channels = weights.shape[_find_channels(product)] if weights.shape else 0
    axes = next((i for i in range(1, y.rank + 1) if prod(y.shape[-i:]) == channels), 0)
    vector = spread_over_channels(found.tensors["constant#"], y, axes).astype(np.float32)
    old = bias.values.astype(np.float32).reshape(-1) if bias else np.zeros_like(vector)
    if not vector.size or old.size != vector.size:
        return "the constant must vary along the output channels only"
    adds = op.is_builtin("ADD", "SUB")
    if adds:
        new = old + vector if op.code == "ADD" else old - vector
    else:
        factors = vector if op.code == "MUL" else 1 / vector
        new, scaled = old * factors, _scale_filters(product, weights, factors)
        if not scaled or not (op.code == "MUL" or np.isfinite(factors).all()):
            return "the factors must be finite, and the scaled weights exact in their type"
        weights = scaled
    biases = make_constant(f"{y.name}/bias", new, y) if adds or bias else None
    flat = make_like(product.outputs[0], op.code.lower()) if between else y
    whole = replace(product, inputs=(product.inputs[0], weights, biases), outputs=(flat,))
    moves = (replace(move, inputs=(flat, *move.inputs[1:]), outputs=(y,)) for move in between)
    return [whole.with_activation(op.activation), *moves]


def _find_channels(product: Op) -> int:
    """Return the axis of the output channels of the filters."""
    declaration = find_operator(product).quantization
    return declaration.units if isinstance(declaration, Product) else 0


def _scale_filters(product: Op, weights: Tensor, factors: Array) -> Tensor | None:
    """Return filters whose output channels are multiplied by factors; condition 4 may fail."""
    axis = _find_channels(product)
    shape = [-1 if i == axis else 1 for i in range(weights.rank)]
    scaled = np.asarray(weights.values.astype(np.float32) * factors.reshape(shape), np.float32)
    with np.errstate(over="ignore"):
        stored = scaled.astype(weights.values.dtype)
    if not np.array_equal(stored, scaled):
        return None
    return replace(weights, name=f"{weights.name}/scaled", data=stored)
