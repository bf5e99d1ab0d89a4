"""Slices that take a tensor apart.

`split_slices`: slices of a small tensor become one TRANSPOSE and one SPLIT. Streaming models store
the states of their layers in one tensor, and take each state with a STRIDED_SLICE of its own, for
which ONNX needs a Slice and a Reshape. DTLN's first network takes 0.94 of the time with one
TRANSPOSE for its four states. The slices are replaced if

1. SLICE and STRIDED_SLICE take one index along some axes, the same for all slices, and all indices
   along the other axes;
2. one of these axes is the last one: Slice copies whole rows faster than Transpose moves them;
3. there are at least three slices, one for each index along these axes;
4. the tensor is computed, small and of fixed size, and all tensors have one type and scale.

`slice_before_transpose`: items of a TRANSPOSE are taken before the TRANSPOSE, which then has an
axis less. PyTorch's vision transformers compute queries, keys and values by one dense layer:

    x = RESHAPE(layer)                      [batch, rows, 3, heads, depth]
    queries, keys, values = TRANSPOSE(x)    [3, batch, heads, rows, depth]

Their attention is recognised (see `fuse_attention`) if each of the three has a TRANSPOSE of its
own. SLICE, STRIDED_SLICE and UNPACK are replaced by RESHAPE(TRANSPOSE(RESHAPE(SLICE(x)))) if

1. each reader of the output of the TRANSPOSE takes items: one index along one axis, and all indices
   along the other axes;
2. the TRANSPOSE moves the heads of each item before its rows;
3. the tensors are float32 and have fixed sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import prod
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.traits import TakesRanges
from tflite2onnx.passes.operands import find_order, is_float
from tflite2onnx.passes.patterns.attention.fuse_attention import HEADS_FIRST
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.tensor import Tensor

SLICES = ("SLICE", "STRIDED_SLICE")  # with one output, unlike others that take ranges
_FEWEST = 3  # slices
_MOST = 1 << 14  # elements


class _Item(NamedTuple):
    """The axes along which a slice takes one index, and the number of the slice along them."""

    axes: tuple[int, ...]
    number: int


def list_slices(graph: Graph) -> dict[Tensor, list[Op]]:
    """Return the operators that slice each tensor."""
    slices: dict[Tensor, list[Op]] = {}
    for op in graph.ops:
        if op.is_builtin(*SLICES):
            slices.setdefault(op.operand(0), []).append(op)
    return slices


def _split_first(found: Match) -> list[Op]:
    """Return the operators that replace all slices of a tensor, at the first slice."""
    x = found.tensors["x"]
    ops = found.analyze(list_slices).get(x, [])
    return _split(x, ops) if len(ops) >= _FEWEST and ops[0] is found.last else []


def _split(x: Tensor, ops: Sequence[Op]) -> list[Op]:
    """Return the operators that replace the slices of a tensor; none unless the conditions hold."""
    if x.has_data or x.symbols or not 0 < x.elements <= _MOST:
        return []
    found = (_find_item(x, op) for op in ops)
    items = [item for item in takewhile(bool, found) if item]
    axes = {item.axes for item in items}
    if len(items) < len(ops) or len(axes) != 1:
        return []
    (moved,) = axes
    count = prod(x.shape[axis] for axis in moved)
    parts = {item.number: op.outputs[0] for item, op in zip(items, ops, strict=True)}
    if len(ops) != count or len(parts) != count:
        return []
    rewriter, rest = Rewriter(ops[0]), [i for i in range(x.rank) if i not in moved]
    order, flat = (*moved, *rest), x
    if order != (*range(x.rank),):
        shape = tuple(x.shape[i] for i in order)
        constant = make_int32("order", order)
        flat = rewriter.op("TRANSPOSE", x, constant, like=x, shape=shape)
    shape = (count, *(x.shape[i] for i in rest))
    flat = rewriter.reshape(flat, shape, like=x, name="items")
    rows = tuple(make_like(x, f"item{i}", (1, *shape[1:])) for i in range(count))
    inputs = (make_int32("axis", 0), flat)
    split = Op("SPLIT", ops[0].index, inputs, rows)
    rewriter.ops.append(split)
    for number, row in enumerate(rows):
        rewriter.reshape(row, output=parts[number])
    return rewriter.ops


def find_taken_ranges(op: Op) -> dict[int, range]:
    """Return the indices that a slice takes along the axes that it does not take whole."""
    operator = find_operator(op)
    ranges = operator.ranges if isinstance(operator, TakesRanges) else None
    sizes = op.operand(0).shape
    return {i: r for i, r in enumerate(ranges or ()) if r != range(sizes[i])}


def _find_item(x: Tensor, op: Op) -> _Item | None:
    """Return what a slice takes, None unless condition 1 holds, and those of types and sizes."""
    y, taken = op.outputs[0], find_taken_ranges(op)
    if y.symbols or y.dtype is not x.dtype:
        return None
    if not same_quantization(x.quantization, y.quantization) or x.per_axis:
        return None
    if x.rank - 1 not in taken or any(len(indices) != 1 for indices in taken.values()):
        return None
    places, sizes = [r[0] for r in taken.values()], [x.shape[i] for i in taken]
    return _Item(tuple(taken), int(np.ravel_multi_index(places, sizes)))


class _Items(NamedTuple):
    """The items that an operator takes along an axis of the output of a TRANSPOSE."""

    transpose: Op
    axis: int
    indices: tuple[int, ...]


def _find_all_items(graph: Graph) -> dict[Op, _Items]:
    found = ((op, _find_items(op, graph)) for op in graph.walk_ops())
    return {op: items for op, items in found if items}


def _slice(found: Match) -> list[Op]:
    """Return the operators that take the items before the TRANSPOSE; [] if it has other readers."""
    every, op = found.analyze(_find_all_items), found.last
    items = every.get(op)
    if not items or not found.graph.readers.are_among(every, found.tensors["whole"]):
        return []
    rewriter, (transpose, axis, indices) = Rewriter(op), items
    x, order = transpose.operand(0), make_int32("order", HEADS_FIRST)
    old = find_order(transpose)[axis]
    for y, index in zip(op.outputs, indices, strict=True):
        begin = [index if i == old else 0 for i in range(x.rank)]
        sizes = tuple(1 if i == old else size for i, size in enumerate(x.shape))
        constants = (make_int32("begin", begin), make_int32("size", sizes))
        item = rewriter.op("SLICE", x, *constants, like=y, name="item", shape=sizes)
        shape = tuple(size for i, size in enumerate(x.shape) if i != old)
        item = rewriter.reshape(item, shape, like=y, name="flat")
        shape = tuple(shape[i] for i in HEADS_FIRST)
        item = rewriter.op("TRANSPOSE", item, order, like=y, name="moved", shape=shape)
        rewriter.reshape(item, output=y)
    return rewriter.ops


def _find_items(op: Op, graph: Graph) -> _Items | None:
    """Return the items that an operator takes, None unless conditions 2 and 3 hold."""
    x = op.operand(0)
    transpose = graph.producers.find(x)
    order = find_order(transpose)
    if any(t.symbols or not is_float(t) for t in (x, transpose.operand(0), *op.outputs)):
        return None
    if len(order) != x.rank:
        return None
    if op.is_builtin("UNPACK"):
        axis = int(op.options.get("axis", 0))
        items = _Items(transpose, axis, tuple(range(len(op.outputs))))
    else:
        taken = find_taken_ranges(op)
        axis, indices = next(iter(taken.items()), (0, range(0)))
        if len(taken) != 1 or not len(indices) == indices.step == 1:
            return None
        items = _Items(transpose, axis, (indices[0],))
    if not 0 <= items.axis < x.rank or not 0 <= items.indices[0] < x.shape[items.axis]:
        return None
    old = order[items.axis]
    rest = tuple(i - (i > old) for i in order if i != old)
    return items if rest == HEADS_FIRST else None


split_slices = Rules(
    Rule(
        "three or more slices that take a tensor apart along the last axis and others",
        "TRANSPOSE, SPLIT",
        OneOf(*((code, "x", ...) for code in SLICES)),
        _split_first,
        floats=False,
    ),
)
slice_before_transpose = Rules(
    Rule(
        "items of a TRANSPOSE, as vision transformers of PyTorch have them",
        "SLICE, RESHAPE, TRANSPOSE",
        OneOf(*((code, "whole", ...) for code in (*SLICES, "UNPACK"))),
        _slice,
        lambda found: "SOFTMAX" in found.graph.codes,
    ),
)
