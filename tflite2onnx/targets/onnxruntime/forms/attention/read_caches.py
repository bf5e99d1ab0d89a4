"""Attention of one token over long caches of keys and values, in forms that copy no cache.

`list_attention` recognises it. If the user or the target wants the caches as batch, heads, tokens,
depth in memory, ATTENTION that writes the caches replaces it, if

1. the key and the value of the token are written at its position, which is an input of the graph;
2. the mask hides all tokens after the position, and none up to it; or all but the last few, always
   as many. This is proven by all positions of the cache.

ONNX Runtime's GroupQueryAttention reads the tokens up to the position only, updates caches in
place, and rotates queries and keys that ROTARY_EMBEDDING rotates by angles of the position. Layers
of Gemma 3n and 4 read the caches of other layers. Each of the layers gets the key and the value of
the token, and writes them: the first one to an output of the graph, the others to a copy. A written
cache holds no numbers after the position, so nothing but attention may read it.

ATTENTION that reads the caches in any order replaces other attention. The mask may say anything.
Often it is a row of a table, and NaN for positions after the cache. If condition 2 holds (see
`positions`), only the tokens that are seen are read, and angles of the position are rows of a
table.

ONNX Runtime's product of matrices copies its second operand, unless the first one has a single row,
and reads its first operand as it is. So long caches are first operands, or are multiplied by single
rows: 0.6 to 0.75 of the time if they come from memory, 1.1 to 1.3 from the processor's caches, in
which models of less than 32 MB stay. Rows of 16 heads are computed at once, so the heads of keys
[tokens, heads, depth] are one matrix; the queries are 0 in the depths of other heads.

Models of mixed precision round scores and weights to float16, as none of these nodes does. Their
operators stay (`mark_updates`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.layout import Order
from tflite2onnx.passes.operands import find_producer, trace_sequence
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.planning import PlannedGraph
from tflite2onnx.targets.onnxruntime.costs import CACHED, NEAR
from tflite2onnx.targets.onnxruntime.forms.attention.cache_attention import (
    DEPTH,
    CacheAttention,
    list_attention,
)
from tflite2onnx.targets.onnxruntime.forms.attention.positions import CachePositions
from tflite2onnx.tensor import DType, Tensor

_WRITING = "attention that writes caches"
_AXES = 4
_FLOAT = 4  # bytes
# Bytes of keys or values. More of them come from memory in models of many constants, which fill the
# processor's caches between two runs.
_FAR = NEAR // 8


def write_caches(graph: Graph) -> Graph:
    """Return the graph with ATTENTION that writes caches, and that reads other caches."""
    return read_caches(graph, graph.planning.user_orders if isinstance(graph, PlannedGraph) else {})


def read_caches(graph: Graph, wanted: Mapping[Tensor, Order] | None = None) -> Graph:
    """Return the graph with ATTENTION that reads caches, or writes those in the `wanted` orders."""
    found = list_attention(graph)
    return _Replacer(graph, found).replace_all(wanted or {}) if found else graph


class _Replacer:
    """Makes the operators that replace attention and rotations."""

    def __init__(self, graph: Graph, found: Sequence[CacheAttention]) -> None:
        data = sum(t.elements * t.dtype.bits for t in graph.tensors if t.has_data) // 8
        self._graph, self._found, self._is_far = graph, found, data >= CACHED
        lengths = {each.shape[1] for each in found}
        self._positions = {length: CachePositions(graph, length) for length in lengths}
        self._beyond = {n: CachePositions(graph, n + 1, first=n) for n in lengths}

    def replace_all(self, wanted: Mapping[Tensor, Order]) -> Graph:
        """Return the graph with ATTENTION and rotations by tables."""
        replaced = self._write_caches(wanted)
        others = [each for each in self._found if each.product not in replaced]
        replaced |= {each.product: self._make_reading(each) for each in others}
        lengths = {each.shape[1] for each in others}
        bounded = [n for n in lengths if self._positions[n].position is not None]
        for op in self._graph.ops:
            if op.is_builtin("ROTARY_EMBEDDING") and op.operand(1).shape[0] == 1 and bounded:
                replaced[op] = [self._rotate(op, self._positions[max(bounded)])]
        return self._replace(replaced)

    def _replace(self, replaced: Mapping[Op, list[Op]]) -> Graph:
        changed = self._graph.rewrite(lambda op: replaced.get(op, [op]))
        return eliminate_dead_operators(changed)

    def _write_caches(self, wanted: Mapping[Tensor, Order]) -> dict[Op, list[Op]]:
        """Return what replaces attention over caches in the wanted orders, and their updates."""
        found = [
            each
            for each in self._found
            if [*map(wanted.get, (*each.sources, *each.written))] == [*each.orders * 2]
        ]
        while found:
            replaced: dict[Op, list[Op]] = {}
            for each in found:
                if ops := self._make_writing(each, replaced):
                    replaced |= {update: [] for update in each.updates} | {each.product: ops}
            read = {tensor for op in self._replace(replaced).walk_ops() for tensor in op.inputs}
            kept = [each for each in found if read.isdisjoint(each.written)]
            if len(kept) == len(found):
                return replaced
            for each in found if kept else ():
                if each not in kept:
                    log_loss(each.product, _WRITING, "attention alone must read the caches")
            found = kept
        return {}

    def _make_writing(self, found: CacheAttention, replaced: Mapping[Op, list[Op]]) -> list[Op]:
        """Return the operators that write caches, and attend; none unless the conditions hold."""
        positions = self._positions[found.shape[1]]
        window, position = find_causal_window(found, positions), positions.position
        if isinstance(window, str) or position is None:
            log_loss(found.product, _WRITING, str(window))
            return []
        rw, y = Rewriter(found.product), found.product.outputs[0]
        tokens = [found.queries, *(update.operand(1) for update in found.updates)]
        tokens[:2], tables = _find_rotation(tokens[:2], self._graph, positions)
        flat = [rw.reshape(t, (1, 1, t.elements), like=t, name="token") for t in tokens]
        place = rw.reshape(position, (1,), like=position, name="position")
        attended = Tensor(f"{y.name}/attended", flat[0].shape, DType.FLOAT32)
        # An earlier layer may write the same caches.
        pairs = zip(found.updates, found.written, strict=True)
        written = [replace(t) if update in replaced else t for update, t in pairs]
        inputs = (*flat, None, place, *found.sources, *tables)
        made = found.made.replace(window=window)
        rw.ops.append(Op("ATTENTION", rw.source.index, inputs, (attended, *written), made=made))
        rw.reshape(attended, output=y)
        return rw.ops

    def _make_reading(self, found: CacheAttention) -> list[Op]:
        """Return the operators that attend to caches."""
        y, (heads, tokens, depth) = found.product.outputs[0], found.shape
        rw = Rewriter(found.product)
        shape = (heads, y.elements // (heads * depth), depth)
        queries = rw.reshape(found.queries, shape, like=found.queries, name="heads")
        position, window = self._find_position(found, tokens)
        place = mask = None
        if position is None:
            mask = rw.reshape(found.mask, (1, tokens), like=found.mask, name="row")
        else:
            place = rw.reshape(position, (1,), like=position, name="position")
        # A copy of the tokens that are seen is made in each run.
        size, is_far = _FLOAT * heads * tokens * depth, mask is None or self._is_far
        is_long = is_far and size >= (NEAR if mask is None else _FAR)
        made = found.made.replace(window=window, is_long=is_long)
        inputs = queries, *found.written, mask, place
        attended = rw.op("ATTENTION", *inputs, like=y, name="attended", shape=shape, made=made)
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


def find_causal_window(found: CacheAttention, positions: CachePositions) -> int | str:
    """Return how many tokens attention shows, 0 for all; or which condition of writing is broken.

    These are the conditions of attention that writes caches.
    """
    length = found.shape[1]
    for update, order in zip(found.updates, found.orders, strict=True):
        starts = positions.find_rows(update.operand(2))
        expected = np.zeros((length, _AXES))
        expected[:, order[2]] = np.arange(length)
        if starts is None or not np.array_equal(starts, expected):
            return "the token must be written at its position"
    window = positions.find_window(found.mask) if found.hides_tokens else None
    return "the mask must hide all tokens after the position" if window is None else window


def _find_rotation(
    tokens: list[Tensor], graph: Graph, positions: CachePositions
) -> tuple[list[Tensor], list[Tensor]]:
    """Return queries and keys before they are rotated, and cosines and sines of all positions.

    Returns them as they are, and no tables, unless both are rotated by angles of the position.
    """
    rotated = [trace_sequence(t, graph) for t in tokens]
    pair = [find_producer(t, graph, "ROTARY_EMBEDDING") for t in rotated]
    if NO_OP in pair or pair[0].operand(0).shape[-1] % (2 * DEPTH):
        return tokens, []
    tables, others = ([positions.make_table(t) for t in op.present[1:]] for op in pair)
    # Equal tables are one constant.
    if tables != others or None in tables:
        return tokens, []
    return [op.operand(0) for op in pair], [table for table in tables if table]
