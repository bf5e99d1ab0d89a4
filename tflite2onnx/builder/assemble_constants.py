"""Constants that are copies of smaller ones, which the model makes when it is loaded.

A convolution that makes several pixels at once has the filters of one pixel several times, at
different places of a larger window, and padded channels are zeros. The file stores the filters
once. ONNX Runtime folds nodes that read constants only (ConstantFolding), before it fuses
DequantizeLinear with the operator that reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, StoredAssembly, every_node
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.share_transposed import read_made
from tflite2onnx.layout import Order, identity
from tflite2onnx.tensor import DType
from tflite2onnx.utils.mapped_files import find_address

# A constant is stored whole if its nodes, which have so many bytes each with their constants, are
# larger, or if they make the file smaller by less than this part: they are seen by who reads it.
_NODE = 200
_LEAST_SAVED = 1 / 128
_FIRST_OPSET = 13  # ONNX Runtime's Pad has kernels for integers of 8 bits
_PADDED = (DType.FLOAT32, DType.INT8, DType.UINT8)


def assemble_constants(g: Builder, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of the main graph, after those that make constants of smaller ones."""
    if not g.assemblies or g.canonical or g.opset < _FIRST_OPSET:
        return tuple(nodes)
    inner, made = g.make_nested(), dict[Value, Value]()
    inner.types = {}
    adaptive = {each.integers for each in g.adaptive.values()}
    assembled: dict[Hashable, Value] = {}
    read = dict.fromkeys(x for node in every_node(nodes) for x in node.present)
    constants = [(value, value.data) for value in read if value.data is not None]
    least = sum(data.nbytes for _, data in constants) * _LEAST_SAVED
    for value, elements in constants:
        stored = g.assemblies.get(id(elements))
        if stored is None or value.dtype not in _PADDED or not _is_smaller(stored, least):
            continue
        # Only adaptive weights may be shared, see `own_constant`.
        key = _identify(stored) if value in adaptive else value
        if key not in assembled:
            assembled[key] = _assemble(inner, value, stored)
        made[value] = assembled[key]
    return (*inner.nodes, *(read_made(node, made) for node in nodes)) if made else tuple(nodes)


def _is_smaller(stored: StoredAssembly, least: float) -> bool:
    """Return whether nodes make the same elements and save at least so many bytes."""
    have, made = stored.elements, stored.assembly
    if have.nbytes - made.source.nbytes - _NODE * (len(made.pads) + 2) < least:
        return False
    return np.array_equal(made.elements.transpose(stored.order).reshape(have.shape), have)


def _identify(stored: StoredAssembly) -> Hashable:
    """Return a key, which is equal for copies of the same memory."""
    made = stored.assembly
    memory = find_address(made.source), made.source.shape, made.source.strides, made.source.dtype
    return memory, made.pads, made.permutation, made.shape, made.fill, stored.order, stored.shape


def _assemble(g: Builder, value: Value, stored: StoredAssembly) -> Value:
    """Return a constant that Pad, Concat, Transpose and Reshape make of a smaller one."""
    made, dtype = stored.assembly, value.dtype or DType.FLOAT32
    # The order of the copies needs no Transpose, unless axes are joined.
    first = stored.order if made.keeps_axes else identity(made.source.ndim)
    source = Value(made.source.transpose(first), dtype, value.name)
    fill = g.scalar(made.fill, dtype)
    copies = [_pad(g, source, [pads[axis] for axis in first], fill) for pads in made.pads]
    result = copies[0] if len(copies) == 1 else g.Concat(*copies, axis=first.index(0))
    if not made.keeps_axes:
        result = g.reshape(_transpose(g, result, made.permutation), made.shape)
        result = _transpose(g, result, stored.order)
    return result if stored.shape is None else g.reshape(result, stored.elements.shape)


def _pad(g: Builder, x: Value, pads: Sequence[tuple[int, int]], fill: Value) -> Value:
    sizes = [n for side in zip(*pads, strict=True) for n in side]
    return g.Pad(x, g.ints(sizes), fill) if any(sizes) else x


def _transpose(g: Builder, x: Value, permutation: Order) -> Value:
    moves = permutation != identity(len(permutation))
    return g.Transpose(x, perm=permutation) if moves else x
