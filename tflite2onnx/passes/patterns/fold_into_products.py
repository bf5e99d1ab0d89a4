"""ADD, SUB and MUL by constants behind a convolution or a dense layer go into its constants.

    (x W + b) * m = x (W m) + b m
    (x W + b) + c = x W + (b + c)

ONNX Runtime does this when it loads a convolution, but not for a dense layer: a cell of an LSTM
whose steps are spelled out has one node less of 14. The ONNX model is smaller in both cases. An
operator is folded if

1. its input is the output of CONV_2D, DEPTHWISE_CONV_2D or FULLY_CONNECTED, which applies no
   activation, and which no other operator reads; both outputs have one shape;
2. all tensors are float32; filters and biases are constant;
3. the constant has one element for each output channel, or only one;
4. the filters are stored as float32, if they are multiplied: filters that are stored as float16
   would take twice the bytes.

Products of filters are rounded once more, which changes a result by 1e-7 of the range.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import is_float
from tflite2onnx.tensor import Array, Tensor

# The axis of the output channels of the filters.
_CHANNELS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": -1, "FULLY_CONNECTED": 0}
_FOLDED = ("ADD", "MUL", "SUB")
_BIAS = 2  # the input


def fold_into_products(graph: Graph) -> Graph:
    """Return the graph with constants folded into filters and biases."""
    products: dict[Tensor, Op] = {}
    folded: dict[Op, Op] = {}

    def find_products(op: Op) -> None:
        folds = op.is_builtin(*_FOLDED) and op.outputs
        whole = _fold_constant(op, products, graph) if folds else None
        if whole is not None:
            folded[op] = whole
        current = whole or op
        if current.is_builtin(*_CHANNELS) and current.outputs and len(current.inputs) >= _BIAS:
            products[current.outputs[0]] = current

    for op in graph.every_op():
        find_products(op)
    # The products that are folded are dead.
    return graph.rewrite(lambda op: (folded.get(op, op),)) if folded else graph


def _fold_constant(op: Op, products: dict[Tensor, Op], graph: Graph) -> Op | None:
    """Return the product with the constant of an operator, None unless the conditions hold."""
    x, constant = (*op.inputs, None, None)[:2]
    if x is not None and x.data is not None and not op.is_builtin("SUB"):
        x, constant = constant, x
    if x is None or constant is None or constant.data is None or x not in products:
        return None
    product, y = products[x], op.outputs[0]
    read_once = graph.readers.find_only_reader(x) is op
    operands = [t for t in (*product.inputs, constant, y) if t is not None]
    if not (read_once and product.activation == "NONE" and all(map(is_float, operands))):
        return None
    weights = product.inputs[1]
    if weights is None or weights.data is None or not weights.shape or x.sizes != y.sizes:
        return None
    channels = weights.shape[_CHANNELS[product.code]]
    vector = _spread_over_channels(constant, y) if y.shape[-1:] == (channels,) else None
    bias = product.inputs[_BIAS] if len(product.inputs) > _BIAS else None
    if vector is None or (bias is not None and bias.data is None):
        return None
    return _combine_constants(op, product, weights, bias, vector)


def _spread_over_channels(constant: Tensor, y: Tensor) -> Array | None:
    """Return a constant as [C], None if it varies along another axis than the last."""
    channels = y.shape[-1] if y.rank else 0
    if constant.data is None or constant.rank > y.rank or constant.elements not in (1, channels):
        return None
    if constant.elements == channels != 1 and constant.shape[-1] != channels:
        return None
    data = constant.data.astype(np.float32).reshape(-1)
    return np.ascontiguousarray(np.broadcast_to(data, (channels,)))


def _combine_constants(
    op: Op, product: Op, weights: Tensor, bias: Tensor | None, vector: Array
) -> Op | None:
    """Return the product with a constant that is added or multiplied; condition 4 may fail."""
    data, old = weights.data, np.zeros(len(vector), np.float32)
    if data is None or (bias is not None and bias.elements != len(vector)):
        return None
    if bias is not None and bias.data is not None:
        old = bias.data.astype(np.float32).reshape(-1)
    if op.code == "MUL":
        axis = _CHANNELS[product.code] % weights.rank
        if data.dtype != np.float32:
            return None
        shape = [-1 if i == axis else 1 for i in range(weights.rank)]
        scaled = np.asarray(data * vector.reshape(shape), np.float32)
        weights = replace(weights, name=f"{weights.name}/scaled", data=scaled)
        old = old * vector
    else:
        old = old + vector if op.code == "ADD" else old - vector
    x, y = product.inputs[0], op.outputs[0]
    biases: tuple[Tensor | None, ...] = (bias,)
    if op.code != "MUL" or bias is not None:
        biases = (Tensor(f"{y.name}/bias", old.shape, y.dtype, np.asarray(old, np.float32)),)
    whole = replace(product, inputs=(x, weights, *biases), outputs=op.outputs)
    return whole.with_activation(op.activation)
