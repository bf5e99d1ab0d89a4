"""Recognise attention of one token that reads caches of keys and values.

    keys = DYNAMIC_UPDATE_SLICE(key cache, key of the token, position)      and so the values
    y = softmax(scale * queries keys + mask(position)) values

A step of a language model consists of it. It is replaced by CACHED_ATTENTION, which no file
contains, if

1. the caches are inputs and their next values are outputs of the graph, of batch 1, and the user or
   the target wants them as batch, heads, tokens, depth in memory;
2. RESHAPE, TRANSPOSE and products by numbers may stand before the products of matrices, in which
   neighbouring heads of the queries share heads of keys and values (`share_heads`);
3. the key and the value of the token are written at its position, which is an input of the graph;
4. the mask hides all tokens behind the position, and none up to it; or all but the last few, always
   as many. This is proven by all positions of the cache;
5. all tensors are float32 and have fixed sizes, the depth is a multiple of 8, and no other operator
   reads the tensors between.

The operator also rotates queries and keys that ROTARY_EMBEDDING rotates by angles of the position.
ONNX Runtime's GroupQueryAttention reads the tokens up to the position only, and updates caches in
place: 0.2 of the time at position 300 of 1,024, 0.55 at 1,000.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from itertools import permutations
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op, Options
from tflite2onnx.layout import Order
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.operands import find_order, find_producer, is_float
from tflite2onnx.passes.patterns.attention.fuse_attention import (
    Matrices,
    scale_elements,
    strip_reshapes,
)
from tflite2onnx.passes.patterns.attention.positions import Positions
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Array, DType, Tensor

_AXES = 4
# Axes of keys and values in products of matrices, of batch, heads, tokens, depth.
_HEADS_FIRST, _TRANSPOSED, _TOKENS_FIRST = (1, 2, 3), (1, 3, 2), (2, 1, 3)
_DEPTH = 8  # of which the depth is a multiple in GroupQueryAttention; twice that, if it rotates
_MOST_TOKENS = 1 << 13  # of a cache, all of whose positions are tried
_HIDDEN = -1e9  # what is added to the scores of tokens that a token does not see, at the most


class _Cache(NamedTuple):
    """A cache, its update, the key or value that is written, and its order in memory."""

    update: Op
    order: Order

    @property
    def shape(self) -> tuple[int, ...]:
        """Heads, tokens, and depth."""
        return tuple(self.update.operand(0).shape[axis] for axis in self.order[1:])


class CacheAttention(NamedTuple):
    """Attention: its operands, and the operator that computes its result."""

    queries: Tensor
    factor: float
    keys: _Cache
    values: _Cache
    mask: Tensor
    product: Op


def read_caches(graph: Graph, wanted: Mapping[Tensor, Order]) -> Graph:
    """Return the graph with CACHED_ATTENTION; `wanted` has the orders of the caches."""
    if "DYNAMIC_UPDATE_SLICE" not in graph.codes or not wanted:
        return graph
    found = [a for op in graph.ops if (a := find_attention(op, graph, wanted))]
    replaced = _Replacer(graph).replace_all(found)
    if not replaced:
        return graph
    changed = graph.rewrite(lambda op: replaced.get(op, [op]))
    return eliminate_dead_operators(changed)


class _Replacer:
    """Makes the operators that replace attention; results of positions are computed once."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._positions: dict[int, Positions] = {}
        self._tables: dict[Hashable, Tensor] = {}

    def replace_all(self, found: list[CacheAttention]) -> dict[Op, list[Op]]:
        """Return what replaces operators; nothing replaces updates of caches."""
        result: dict[Op, list[Op]] = {}
        for each in found:
            if ops := self._replace(each):
                result |= {each.keys.update: [], each.values.update: [], each.product: ops}
        return result

    def _replace(self, found: CacheAttention) -> list[Op]:
        """Return the operators that replace attention; none unless conditions 3 and 4 hold."""
        length = found.keys.shape[1]
        positions = self._positions.setdefault(length, Positions(self._graph, length))
        for cache in (found.keys, found.values):
            starts = positions.analyze(cache.update.operand(2), stack_rows)
            expected = np.zeros((length, _AXES))
            expected[:, cache.order[2]] = np.arange(length)
            if starts is None or not np.array_equal(starts, expected):
                return []
        window = positions.analyze(found.mask, find_window)
        position = positions.position
        if window is None or position is None:
            return []
        rw = Rewriter(found.product)
        tokens = [found.queries, found.keys.update.operand(1), found.values.update.operand(1)]
        tokens[:2], tables = self._find_rotation(tokens[:2], positions)
        flat = [rw.reshape(t, (1, 1, t.elements), like=t, name="token") for t in tokens]
        place = rw.reshape(position, (1,), like=position, name="position")
        y, caches = found.product.outputs[0], (found.keys, found.values)
        attended = Tensor(f"{y.name}/attended", flat[0].shape, DType.FLOAT32)
        options = {
            "key_order": found.keys.order,
            "value_order": found.values.order,
            "scale": found.factor,
            "window": 0 if window == length else window,
        }
        inputs = (*flat, *(cache.update.operand(0) for cache in caches), place, *tables)
        outputs = (attended, *(cache.update.outputs[0] for cache in caches))
        code, index = "CACHED_ATTENTION", rw.source.index
        rw.ops.append(Op(code, index, inputs, outputs, Options(options)))
        rw.reshape(attended, output=y)
        return rw.ops

    def _find_rotation(
        self, tokens: list[Tensor], positions: Positions
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return queries and keys before they are rotated, and cosines and sines of all positions.

        Returns them as they are, and no tables, unless both are rotated by angles of the position.
        """
        graph = self._graph
        pair = [find_producer(strip_reshapes(t, graph), graph, "ROTARY_EMBEDDING") for t in tokens]
        if NO_OP in pair or pair[0].operand(0).shape[-1] % (2 * _DEPTH):
            return tokens, []
        tables, others = (
            [make_table(t, graph, positions, self._tables) for t in op.inputs[1:]] for op in pair
        )
        found = [table for table in tables if table is not None]
        same = len(found) == len(others) and all(
            other is not None and np.array_equal(table.values, other.values)
            for table, other in zip(found, others, strict=True)
        )
        return ([op.operand(0) for op in pair], found) if same else (tokens, [])


def make_table(
    angle: Tensor | None, graph: Graph, positions: Positions, known: dict[Hashable, Tensor]
) -> Tensor | None:
    """Return a constant with the rows of cosines or sines of all positions, None if there is none.

    `known` are the tables of other layers: equal tables are one constant.
    """
    if angle is None:
        return None
    # Layers reshape the same angles.
    rows = positions.analyze(strip_reshapes(angle, graph), stack_rows)
    if rows is None or rows.dtype != np.float32:
        return None
    key, name = (rows.shape, rows.tobytes()), f"{angle.name}/positions"
    return known.setdefault(key, Tensor(name, rows.shape, DType.FLOAT32, rows))


def stack_rows(rows: Iterable[Array]) -> Array:
    """Return the rows of all positions as one array."""
    return np.stack([*rows])


def find_window(masks: Iterable[Array]) -> int | None:
    """Return how many tokens the masks of all positions show: the last ones up to the position.

    Returns the number of all tokens if the masks hide none before the position, and None if they
    say anything else.
    """
    counts = []
    for position, mask in enumerate(masks):
        shown = mask == 0
        count = int(np.count_nonzero(shown))
        last = shown[max(position + 1 - count, 0) : position + 1]
        if len(last) != count or not np.all(last) or not np.all(shown | (mask <= _HIDDEN)):
            return None
        counts.append(count)
    window = max(counts)
    expected = [min(position + 1, window) for position in range(len(counts))]
    return window if counts == expected else None


def find_attention(op: Op, graph: Graph, wanted: Mapping[Tensor, Order]) -> CacheAttention | None:
    """Return the attention that an operator ends, None unless conditions 1, 2 and 5 hold."""
    find_cache = partial(_find_cache, graph=graph, wanted=wanted)
    if op.is_builtin("ATTENTION") and op.options.get("scale", 0) > 0 and len(op.present) == _AXES:
        q, k, v, mask = op.present
        operands = Matrices(q, factor=op.options.scale)
        keys, values = (find_cache(tensor, _TOKENS_FIRST) for tensor in (k, v))
        return _join(operands, keys, values, mask, op, graph)
    if not op.is_builtin("BATCH_MATMUL") or op.options.adj_x:
        return None
    softmax = find_producer(strip_reshapes(op.operand(0), graph), graph, "SOFTMAX")
    addition = find_producer(strip_reshapes(softmax.operand(0), graph), graph, "ADD")
    if addition.activation != "NONE" or softmax.options.get("beta", 1) != 1:
        return None
    values = find_cache(op.operand(1), _TRANSPOSED if op.options.adj_y else _HEADS_FIRST)
    for scores, mask in list(permutations(addition.present, 2)):
        product = find_producer(strip_reshapes(scores, graph), graph, "BATCH_MATMUL")
        if product is not NO_OP and not product.options.adj_x:
            axes = _HEADS_FIRST if product.options.adj_y else _TRANSPOSED
            keys = find_cache(product.operand(1), axes)
            queries = scale_elements(product.operand(0), graph)
            if found := _join(queries, keys, values, mask, op, graph):
                return found
    return None


def _join(
    queries: Matrices,
    keys: _Cache | None,
    values: _Cache | None,
    mask: Tensor,
    last: Op,
    graph: Graph,
) -> CacheAttention | None:
    """Return attention, None if its operands do not fit together."""
    if keys is None or values is None or keys.shape != values.shape:
        return None
    heads, length, depth = keys.shape
    shown = _find_mask(mask, length, graph) if length <= _MOST_TOKENS else None
    size = queries.tensor.elements
    fits = size % (heads * depth) == depth % _DEPTH == 0 and last.outputs[0].elements == size
    if shown is None or not fits or queries.factor <= 0:
        return None
    return CacheAttention(queries.tensor, queries.factor, keys, values, shown, last)


def _find_mask(tensor: Tensor, length: int, graph: Graph) -> Tensor | None:
    """Return the mask of a token, of one element for each token of the cache.

    CONCATENATION may repeat it for the queries that share a head.
    """
    while tensor.elements != length:
        op = graph.producers.find(tensor)
        repeats = op.is_builtin("CONCATENATION") and {*op.inputs} == {op.operand(0)}
        if not repeats or op.operand(0).shape[-1:] != (length,) or op.activation != "NONE":
            return None
        tensor = op.operand(0)
    return tensor if tensor.shape[-1:] == (length,) else None


def _find_cache(
    tensor: Tensor, places: Order, graph: Graph, wanted: Mapping[Tensor, Order]
) -> _Cache | None:
    """Return the cache with these axes of batch, heads, tokens, depth, None if there is none.

    Between the cache and the tensor are only RESHAPE and TRANSPOSE, and nothing but axes of one
    element changes place in a RESHAPE.
    """
    chain, update = [], graph.producers.find(tensor)
    while update.is_builtin("RESHAPE", "TRANSPOSE"):
        chain.append(update)
        update = graph.producers.find(update.operand(0))
    if not update.is_builtin("DYNAMIC_UPDATE_SLICE"):
        return None
    cache, row, updated = update.operand(0), update.operand(1), update.outputs[0]
    if sum(updated in each.inputs for each in graph.ops) > 1:
        return None
    order = wanted.get(cache, ())
    if len(order) != _AXES or wanted.get(updated) != order or order[0] != 0:
        return None
    fixed = not any(t.symbols or not is_float(t) for t in (cache, row, updated))
    ends = cache in graph.inputs and updated in graph.outputs
    sizes = [cache.shape[axis] for axis in order]
    written = [row.shape[axis] for axis in order]
    if not fixed or not ends or sizes[0] != 1 or 0 in sizes:
        return None
    if written != [1, sizes[1], 1, sizes[3]] or not order[1] < order[3]:
        return None
    axes = _follow_axes(updated, chain[::-1], graph)
    expected = [order[place] for place in places if cache.shape[order[place]] != 1]
    return _Cache(update, order) if axes == expected else None


def _follow_axes(source: Tensor, chain: list[Op], graph: Graph) -> list[int] | None:
    """Return the axes of more than one element behind RESHAPE and TRANSPOSE, None if they merge."""
    axes: list[int | None] = [i if n != 1 else None for i, n in enumerate(source.shape)]
    for op in chain:
        if graph.readers.find_only_reader(op.outputs[0]) is NO_OP:
            return None
        if op.code == "TRANSPOSE":
            axes = [axes[i] for i in find_order(op)]
            continue
        kept = [axis for axis in axes if axis is not None]
        shape = op.outputs[0].shape
        if [n for n in shape if n != 1] != [source.shape[axis] for axis in kept]:
            return None
        rest = iter(kept)
        axes = [None if n == 1 else next(rest) for n in shape]
    return [axis for axis in axes if axis is not None]
