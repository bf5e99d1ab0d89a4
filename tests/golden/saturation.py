"""The integer products of a graph that may saturate on some processor.

On processors with AVX2 or AVX-512 but without VNNI ONNX Runtime multiplies uint8 data by int8
weights with VPMADDUBSW, which adds two products in 16 bits and saturates. A node cannot saturate if
one of these holds:

1. Its weights are uint8. Products with uint8 weights are computed in 16 by 16 bits, and added in
   32 bits.
2. It is a depthwise QLinearConv: each group has one channel and one filter. Its kernels widen the
   products to 32 bits before they add them. A convolution with several filters per channel, or
   with a single channel and several filters, is computed as a matrix product.
3. It is MatMulNBits, whose kernels separate odd and even bytes before they multiply.
4. Its weights are constant, and in each pair of weights whose products are added, the sum of the
   positive weights is at most 128 and the sum of the negative weights at least -128: for all uint8
   data 255 x 128 fits into 16 bits. Zero points do not matter, because the kernels account for
   them after the sum. The pairs are the weights 0 and 1, 2 and 3, ... of a column. The columns of a
   convolution are its filters with channels last.
5. It is MatMulInteger of int8 data, for which x86-64 has no kernel with this instruction. For other
   nodes the type of the data does not matter: ONNX Runtime may convert int8 data to uint8.

On ARM64 the kernels of 2 and 4 add two products of int8 in 16 bits. This overflows only if both
products are -128 by -128: constant int8 weights may hold at most one -128 in a column.

ConvInteger multiplies with the operands swapped, so that its data must not be int8. No ConvInteger
node is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from tests.support.runtimes import Array

# The input index of the weights, [..., terms, columns], and of their zero points.
_WEIGHTS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "QLinearConv": ((3, 5),),
    "QGemm": ((3, 5),),
    "QLinearMatMul": ((3, 5),),
    "MatMulInteger": ((1, 3),),
    "MatMulIntegerToFloat": ((1, 5),),
    "DynamicQuantizeMatMul": ((1, 3),),
    "QAttention": ((1, 7),),
    "DynamicQuantizeLSTM": ((1, 9), (2, 11)),
}
_NEVER_EXACT = ("ConvInteger", "ConvIntegerToFloat")
_MOST, _LEAST = 128, -128


def assume_saturation(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that chooses its adaptive weights as on a processor where int8 saturates."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    exact = {n.input[1] for n in model.graph.node if "int8_is_exact" in n.output}
    for tensor in (t for t in changed.graph.initializer if t.name in exact):
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) - 1, tensor.name))
    return changed


def assume_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model that chooses its adaptive weights as on a processor where int8 is exact."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    equal = [n for n in model.graph.node if "int8_is_exact" in n.output]
    products = [n for n in model.graph.node if n.output[0] in {x for e in equal for x in e.input}]
    # 0 is exact on each processor.
    zero = {*(n.input[1] for n in products), *(n.input[1] for n in equal)}
    for tensor in (t for t in changed.graph.initializer if t.name in zero):
        zeros = np.zeros_like(numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(zeros, tensor.name))
    return changed


def find_saturating(model: onnx.ModelProto) -> list[str]:
    """Return the nodes of an optimized graph that may saturate, with their weights."""
    return list(_saturating(model.graph, {}, {}))


def _saturating(
    graph: onnx.GraphProto, around: Mapping[str, TensorProto], types_around: Mapping[str, int]
) -> Iterator[str]:
    """Yield the nodes of a graph and of its inner graphs, which can use outer names."""
    constants = {**around, **{each.name: each for each in graph.initializer}}
    infos = (*graph.value_info, *graph.input, *graph.output)
    types = {**types_around, **{each.name: each.type.tensor_type.elem_type for each in infos}}
    types |= {name: each.data_type for name, each in constants.items()}
    for node in graph.node:
        if node.op_type in _NEVER_EXACT:
            yield f"{node.op_type} {node.name}"
        for place, zero in _WEIGHTS.get(node.op_type, ()):
            name = node.input[place]
            kind = _type(node, (place, zero), types)
            weights = numpy_helper.to_array(constants[name]) if name in constants else None
            if not _stays_signed(node, types) and _may_saturate(node, kind, weights):
                yield f"{node.op_type} {node.name} by {name}"
        for inner in (each.g for each in node.attribute if each.HasField("g")):
            yield from _saturating(inner, constants, types)


def _type(node: onnx.NodeProto, places: tuple[int, int], types: Mapping[str, int]) -> int:
    """Return the type of an operand, from its zero point if the type is not declared."""
    for place in places:
        name = node.input[place] if place < len(node.input) else ""
        if types.get(name):
            return types[name]
    raise AssertionError(
        f"the type of input {places[0]} of {node.op_type} {node.name} must be known"
    )


def _stays_signed(node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    """Return whether the data of a node is int8 on every processor."""
    return node.op_type == "MatMulInteger" and _type(node, (0, 2), types) == TensorProto.INT8


def _may_saturate(node: onnx.NodeProto, kind: int, weights: Array | None) -> bool:
    if kind == TensorProto.UINT8:
        return False
    if weights is None:
        return True
    columns, depthwise = weights, False
    if node.op_type == "QLinearConv":
        columns = np.moveaxis(weights, 1, -1).reshape(len(weights), -1).T
        depthwise = weights.shape[1] == 1 and len(weights) == _attribute(node, "group", 1)
    elif _attribute(node, "transB", 0):
        columns = weights.swapaxes(-1, -2)
    if ((columns == _LEAST).sum(-2) > 1).any():
        return True
    return not depthwise and pairs_saturate(columns)


def _attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    found: list[Any] = [each.i for each in node.attribute if each.name == name]
    return int(found[0]) if found else default


def pairs_saturate(weights: Array) -> bool:
    """Return whether a pair of int8 weights, [..., terms, columns], may exceed 16 bits."""
    terms = weights.shape[-2]
    pad = [(0, 0)] * (weights.ndim - 2) + [(0, terms % 2), (0, 0)]
    even = np.pad(weights.astype(np.int32), pad)
    pairs = even.reshape(*even.shape[:-2], -1, 2, even.shape[-1])
    above, below = (np.clip(pairs, *bounds).sum(-2) for bounds in ((0, None), (None, 0)))
    return bool((above > _MOST).any() or (below < _LEAST).any())
