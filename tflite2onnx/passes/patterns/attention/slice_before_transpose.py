"""Items of a TRANSPOSE are taken before the TRANSPOSE, which then has an axis less.

PyTorch's vision transformers compute queries, keys and values by one dense layer:

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

from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import operator_for
from tflite2onnx.op.traits import TakesRanges
from tflite2onnx.passes.operands import find_order, is_float
from tflite2onnx.passes.patterns.attention.fuse_attention import HEADS_FIRST
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, int32_constant
from tflite2onnx.tensor import Tensor


class _Items(NamedTuple):
    """The items that an operator takes along an axis of the output of a TRANSPOSE."""

    transpose: Op
    axis: int
    indices: tuple[int, ...]


def _find_all_items(graph: Graph) -> dict[Op, _Items]:
    found = ((op, _find_items(op, graph)) for op in graph.every_op())
    return {op: items for op, items in found if items}


def _slice(found: Match) -> list[Op]:
    """Return the operators that take the items before the TRANSPOSE; [] if it has other readers."""
    every, op = found.analyze(_find_all_items), found.last
    items = every.get(op)
    if not items or not found.graph.readers.are_among(every, found.tensors["whole"]):
        return []
    rewriter, (transpose, axis, indices) = Rewriter(op), items
    x, order = transpose.operand(0), int32_constant("order", HEADS_FIRST)
    old = find_order(transpose)[axis]
    for y, index in zip(op.outputs, indices, strict=True):
        begin = [index if i == old else 0 for i in range(x.rank)]
        sizes = tuple(1 if i == old else size for i, size in enumerate(x.shape))
        constants = (int32_constant("begin", begin), int32_constant("size", sizes))
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
    elif only := _find_only_index(op, x):
        axis, index = only
        items = _Items(transpose, axis, (index,))
    else:
        return None
    if not 0 <= items.axis < x.rank or not 0 <= items.indices[0] < x.shape[items.axis]:
        return None
    old = order[items.axis]
    rest = tuple(i - (i > old) for i in order if i != old)
    return items if rest == HEADS_FIRST else None


def _find_only_index(op: Op, x: Tensor) -> tuple[int, int] | None:
    """Return the only axis along which a slice takes an index, and the index, else None."""
    operator = operator_for(op)
    ranges = operator.ranges if isinstance(operator, TakesRanges) else None
    taken = [(i, r) for i, r in enumerate(ranges or ()) if r != range(x.shape[i])]
    if len(taken) != 1:
        return None
    axis, indices = taken[0]
    return (axis, indices[0]) if len(indices) == indices.step == 1 else None


slice_before_transpose = Rules(
    Rule(
        "items of a TRANSPOSE, as vision transformers of PyTorch have them",
        "SLICE, RESHAPE, TRANSPOSE",
        OneOf(*((code, "whole", ...) for code in ("SLICE", "STRIDED_SLICE", "UNPACK"))),
        _slice,
        lambda found: "SOFTMAX" in found.graph.codes,
    ),
)
