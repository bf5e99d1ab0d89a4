"""Attention of one token over long caches of keys and values, in the form that copies no cache.

    y = softmax(scale * queries keys + mask) values

A step of a language model consists of it. It is replaced by TOKEN_ATTENTION, which no file
contains, if

1. the caches are inputs of the graph, of batch 1, in which DYNAMIC_UPDATE_SLICE writes the keys and
   values of the token; the updated caches are outputs of the graph;
2. conditions 2 and 5 of `read_caches` hold.

The mask may say anything. Often it is a row of a table, and NaN for positions after the cache. If
it shows a token all tokens up to its position, or the last few of them (see `positions`), only
these are read, and angles of the position are rows of a table. `read_caches` needs fewer nodes, but
caches in another order in memory, and does not keep what they hold after the position.

ONNX Runtime's product of matrices copies its second operand, unless the first one has a single row,
and reads its first operand as it is. So long caches are first operands, or are multiplied by single
rows: 0.6 to 0.75 of the time if they come from memory, 1.1 to 1.3 from the processor's caches, in
which models of less than 32 MB stay. Rows of 16 heads are computed at once, so the heads of keys
[tokens, heads, depth] are one matrix; the queries are 0 in the depths of other heads.
"""

from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import Order
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.targets.onnxruntime.forms.attention.positions import CachePositions
from tflite2onnx.targets.onnxruntime.forms.attention.read_caches import (
    CacheAttention,
    list_attention,
)
from tflite2onnx.tensor import DType, Tensor

_AXES = 4
_FAR = 1 << 25  # bytes of constants
# Elements of a cache that is read from memory: a copy, and caches of small and large models.
_LONG, _LONGEST = 1 << 18, (1 << 62, 1 << 15)


def attend_tokens(graph: Graph) -> Graph:
    """Return the graph with TOKEN_ATTENTION; see above for the conditions."""
    orders: dict[Tensor, Order] = {}
    for op in graph.ops:
        if op.is_builtin("DYNAMIC_UPDATE_SLICE"):
            orders |= dict.fromkeys((op.operand(0), op.outputs[0]), _find_axes(op))
    found = list_attention(graph, orders)
    if not found:
        return graph
    replaced = _Replacer(graph, found).replace_all()
    return eliminate_dead_operators(graph.rewrite(lambda op: replaced.get(op, [op])))


def _find_axes(update: Op) -> Order:
    """Return the axes of batch, heads, tokens and depth of a cache, () if there are others.

    The token is written along one axis. The heads are before the depth.
    """
    sizes, written = update.operand(0).shape, update.operand(1).shape
    axes = range(1, _AXES) if len(sizes) == len(written) == _AXES else ()
    tokens = [i for i in axes if sizes[i] != written[i]]
    heads_depth = [i for i in axes if sizes[i] == written[i]]
    return (0, heads_depth[0], *tokens, heads_depth[1]) if len(tokens) == 1 else ()


class _Replacer:
    """Makes the operators that replace attention and rotations."""

    def __init__(self, graph: Graph, found: list[CacheAttention]) -> None:
        data = sum(t.elements * t.dtype.bits for t in graph.tensors if t.has_data) // 8
        self._graph, self._found, self._is_far = graph, found, data >= _FAR
        lengths = {each.keys.shape[1] for each in found}
        self._positions = {length: CachePositions(graph, length) for length in lengths}
        self._beyond = {n: CachePositions(graph, n + 1, first=n) for n in lengths}

    def replace_all(self) -> dict[Op, list[Op]]:
        """Return what replaces operators."""
        replaced = {each.product: self._replace(each) for each in self._found}
        bounded = [n for n, each in self._positions.items() if each.position is not None]
        for op in self._graph.ops:
            if op.is_builtin("ROTARY_EMBEDDING") and op.operand(1).shape[0] == 1 and bounded:
                replaced[op] = [self._rotate(op, self._positions[max(bounded)])]
        return replaced

    def _replace(self, found: CacheAttention) -> list[Op]:
        """Return the operators that replace attention."""
        y, keys, values = found.product.outputs[0], found.keys, found.values
        heads, tokens, depth = keys.shape
        rw = Rewriter(found.product)
        shape = (heads, y.elements // (heads * depth), depth)
        queries = rw.reshape(found.queries, shape, like=found.queries, name="heads")
        caches = (cache.update.outputs[0] for cache in (keys, values))
        position, window = self._find_position(found, tokens)
        place = mask = None
        if position is None:
            mask = rw.reshape(found.mask, (1, tokens), like=found.mask, name="row")
        else:
            place = rw.reshape(position, (1,), like=position, name="position")
        elements = heads * tokens * depth
        is_long = elements >= (_LONG if mask is None else _LONGEST[self._is_far])
        hidden = None if mask is None or mask.dtype is not DType.BOOL else found.hidden
        made = found.options.replace(window=window, hidden=hidden, is_long=is_long)
        inputs = queries, *caches, mask, place
        attended = rw.op(
            "TOKEN_ATTENTION", *inputs, like=y, name="attended", shape=shape, made=made
        )
        rw.reshape(attended, output=y)
        return rw.ops

    def _find_position(self, found: CacheAttention, tokens: int) -> tuple[Tensor | None, int]:
        """Return the position of which a mask shows all tokens up to it, or a window of them.

        Returns no position if the mask says anything else, or anything after the cache.
        """
        mask = found.mask
        if not found.hides_tokens:
            return None, 0
        positions, beyond = self._positions[tokens], self._beyond[tokens].find_rows(mask)
        is_bounded = beyond is None or bool(np.isnan(beyond).all())
        window = positions.find_window(mask) if is_bounded else None
        return (None, 0) if window is None else (positions.position, window)

    def _rotate(self, op: Op, positions: CachePositions) -> Op:
        """Return a ROTARY_EMBEDDING that reads its angles from tables of all positions."""
        tables = [positions.make_table(t) for t in op.present[1:]]
        if None in tables or positions.position is None:
            return op
        return replace(op, inputs=(op.operand(0), *tables, positions.position))
