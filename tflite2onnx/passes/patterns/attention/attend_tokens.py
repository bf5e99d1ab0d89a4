"""Attention of one token over long caches of keys and values, in the form that copies no cache.

    y = softmax(scale * queries keys + mask) values

A step of a language model consists of it. It is replaced by TOKEN_ATTENTION, which no file
contains, if

1. the caches are inputs of the graph, of batch 1, in which DYNAMIC_UPDATE_SLICE writes the keys and
   values of the token; the updated caches are outputs of the graph;
2. conditions 2 and 5 of `read_caches` hold.

The mask may say anything. `read_caches` is faster, but needs caches in another order in memory, and
does not keep what they hold behind the position.

ONNX Runtime's product of matrices copies its second operand, unless the first one has a single row,
and reads its first operand as it is. So caches are first operands, or are multiplied by single
rows: 0.6 to 0.75 of the time if they come from memory, 1.1 to 1.3 from the processor's caches, in
which models of less than 32 MB stay. Rows of 16 heads are computed at once, so the heads of keys
[tokens, heads, depth] are one matrix; the queries are 0 in the depths of other heads.
"""

from __future__ import annotations

from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import Order
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.patterns.attention.read_caches import CacheAttention, find_attention
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_AXES = 4
_FAR = 1 << 25  # bytes of constants
_LONG = 1 << 15  # elements of a cache


def attend_tokens(graph: Graph) -> Graph:
    """Return the graph with TOKEN_ATTENTION; see above for the conditions."""
    orders: dict[Tensor, Order] = {}
    for op in graph.ops:
        if op.is_builtin("DYNAMIC_UPDATE_SLICE"):
            orders |= dict.fromkeys((op.operand(0), op.outputs[0]), _find_axes(op))
    found = [each for op in graph.ops if (each := find_attention(op, graph, orders))]
    if not found:
        return graph
    data = sum(t.elements * t.dtype.bits for t in graph.tensors if t.has_data) // 8
    replaced = {each.product: _replace(each, is_far=data >= _FAR) for each in found}
    return eliminate_dead_operators(graph.rewrite(lambda op: replaced.get(op, [op])))


def _find_axes(update: Op) -> Order:
    """Return the axes of batch, heads, tokens and depth of a cache, () if there are others.

    The token is written along one axis. The heads are before the depth.
    """
    cache, row = update.operand(0), update.operand(1)
    if cache.rank != _AXES or row.rank != _AXES:
        return ()
    tokens = [i for i in range(1, _AXES) if row.shape[i] != cache.shape[i]]
    rest = [i for i in range(1, _AXES) if i not in tokens]
    return (0, rest[0], tokens[0], rest[1]) if len(tokens) == 1 else ()


def _replace(found: CacheAttention, *, is_far: bool) -> list[Op]:
    """Return the operators that replace attention."""
    y, keys, values = found.product.outputs[0], found.keys, found.values
    heads, tokens, depth = keys.shape
    rw = Rewriter(found.product)
    shape = (heads, y.elements // (heads * depth), depth)
    queries = rw.reshape(found.queries, shape, like=found.queries, name="heads")
    mask = rw.reshape(found.mask, (1, tokens), like=found.mask, name="row")
    caches = (cache.update.outputs[0] for cache in (keys, values))
    attended = rw.op(
        "TOKEN_ATTENTION", queries, *caches, mask, like=y, name="attended", shape=shape,
        key_order=keys.order, value_order=values.order, scale=found.factor,
        is_long=is_far and heads * tokens * depth >= _LONG,
    )  # fmt: skip
    rw.reshape(attended, output=y)
    return rw.ops
