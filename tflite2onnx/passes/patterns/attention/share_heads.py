"""Products with keys and values that several heads share read them once.

Language models have fewer heads of keys and values than of queries. Exporters repeat the keys and
values of each head, [heads, rows, depth], before the products:

    repeated = BROADCAST_TO(keys)    [heads, 1, rows, depth] to [heads, shares, rows, depth]
    scores = BATCH_MATMUL(queries, RESHAPE(repeated))    [heads * shares, times, rows]

The queries that share a head become rows of one matrix, so that no key is copied or scaled:

    scores = RESHAPE(BATCH_MATMUL(RESHAPE(queries), keys))    [heads, shares * times, rows]

A BATCH_MATMUL is replaced if

1. its second operand is a BROADCAST_TO that repeats each matrix some times in succession. RESHAPE
   may join and split the axes before the matrices, TRANSPOSE may swap the last two axes, and MUL
   and DIV may scale by a number;
2. both operands have as many matrices, and the first operand is not transposed;
3. all tensors are float32 and have fixed sizes.

A TRANSPOSE that moves the heads of the keys gets three axes: ONNX Runtime's MatMul reads what a
Transpose of three axes returns without a copy. So the RESHAPE before it keeps the last axis.
`fuse_attention` recognises other attention; a step of one token has no TRANSPOSE of the queries.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import find_order, is_float
from tflite2onnx.passes.patterns.attention.fuse_attention import (
    Matrices,
    count_shares,
    trace_matrices,
)
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.tensor import Shape, Tensor

_MATRIX = 2  # axes
_AXES = 3  # heads and matrix


class _Moved(NamedTuple):
    """The result of a TRANSPOSE, and what it transposes without axes of one element."""

    x: Tensor
    sizes: Shape
    order: tuple[int, ...]


def _multiply_once(found: Match) -> list[Op]:
    graph, op = found.graph, found.last
    x, y, output = found.tensors["x"], found.tensors["y"], op.outputs[0]
    matrices = trace_matrices(Matrices(y, bool(op.options.adj_y)), graph)
    repeat = graph.producers.find(matrices.tensor)
    heads = repeat.operand(0)
    tensors = (x, y, output, matrices.tensor, heads)
    if not repeat.is_builtin("BROADCAST_TO") or op.options.adj_x:
        return []
    if any(t.symbols or not is_float(t) or 0 in t.shape for t in tensors):
        return []
    count = count_shares(heads.shape, matrices.tensor.shape)
    if not count or x.shape[:-_MATRIX] != y.shape[:-_MATRIX]:
        return []
    groups, (rows, depth) = prod(heads.shape[:-_MATRIX]), x.shape[-_MATRIX:]
    rw = Rewriter(op)
    if matrices.factor != 1:
        x = rw.op("MUL", x, matrices.factor, like=x, name="scaled")
    queries = rw.reshape(x, (groups, count * rows, depth), like=output, name="queries")
    shared = _join_heads(rw, heads, graph)
    shape = (groups, count * rows, output.shape[-1])
    product = rw.op(
        "BATCH_MATMUL",
        queries,
        shared,
        like=output,
        name="product",
        shape=shape,
        adj_x=False,
        adj_y=matrices.transposed,
    )
    rw.reshape(product, output=output)
    return rw.ops


def _join_heads(rw: Rewriter, heads: Tensor, graph: Graph) -> Tensor:
    """Return matrices with one axis before them, by a TRANSPOSE of three axes if there is one."""
    shape = (prod(heads.shape[:-_MATRIX]), *heads.shape[-_MATRIX:])
    moved = _find_moved(heads, graph)
    if not moved or tuple(moved.sizes[i] for i in moved.order) != shape:
        return rw.reshape(heads, shape, like=heads, name="heads")
    flat = rw.op(
        "RESHAPE", moved.x, like=moved.x, name="heads",
        shape=moved.sizes, new_shape=moved.sizes, keeps_last=True,
    )  # fmt: skip
    order = make_int32("order", moved.order)
    return rw.op("TRANSPOSE", flat, order, like=heads, name="moved", shape=shape)


def _find_moved(tensor: Tensor, graph: Graph) -> _Moved | None:
    """Return the TRANSPOSE of three axes that computes a tensor, before RESHAPEs."""
    op = graph.producers.find(tensor)
    while op.is_builtin("RESHAPE"):
        op = graph.producers.find(op.operand(0))
    x, order = op.operand(0), find_order(op)
    if x.symbols or sorted(order) != [*range(x.rank)]:
        return None
    kept = [axis for axis in range(x.rank) if x.shape[axis] != 1]
    if len(kept) != _AXES:
        return None
    sizes = tuple(x.shape[axis] for axis in kept)
    return _Moved(x, sizes, tuple(kept.index(axis) for axis in order if axis in kept))


share_heads = Rules(
    Rule(
        "product with heads that are repeated",
        "BATCH_MATMUL, RESHAPE",
        ("BATCH_MATMUL", "x", "y"),
        _multiply_once,
    ),
)
