"""Recognise attention of one token that reads caches of keys and values.

    keys = DYNAMIC_UPDATE_SLICE(key cache, key of the token, position)      and so the values
    y = softmax(scale * queries keys + mask(position)) values

A step of a language model consists of it. It is replaced by CACHED_ATTENTION, which no file
contains, if

1. the caches are inputs and their next values are outputs of the graph, of batch 1, and the user or
   the target wants them as batch, heads, tokens, depth in memory;
2. RESHAPE, TRANSPOSE and products by numbers may stand before the products of matrices, but no
   product after the values. In these products neighbouring heads of the queries share heads of keys
   and values (`share_heads`). The scores s may become cap * tanh(s / cap);
3. the key and the value of the token are written at its position, which is an input of the graph;
4. the mask hides all tokens after the position, and none up to it; or all but the last few, always
   as many. This is proven by all positions of the cache;
5. all tensors are float32 and have fixed sizes, the depth is a multiple of 8, and no other operator
   reads the tensors between. The caches may be read by the attention of several layers.

Layers of Gemma 3n and 4 read the caches of other layers. Each of the layers gets the key and the
value of the token, and writes them: the first one to an output of the graph, the others to a copy.
A written cache holds no numbers after the position, so nothing but attention may read it.

The operator also rotates queries and keys that ROTARY_EMBEDDING rotates by angles of the position.
ONNX Runtime's GroupQueryAttention reads the tokens up to the position only, and updates caches in
place.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.layout import Order
from tflite2onnx.passes.operands import (
    are_fixed_floats,
    find_producer,
    squeeze_order,
    squeeze_shape,
)
from tflite2onnx.passes.patterns.matching import GraphMatcher, Match, Named, OneOf, Pattern, through
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_attention import Matrices, scale_matrices
from tflite2onnx.targets.onnxruntime.forms.attention.positions import CachePositions
from tflite2onnx.targets.onnxruntime.operators.attention import AttentionOptions, CacheOptions
from tflite2onnx.tensor import DType, Tensor

_AXES = 4
# Axes of keys and values in products of matrices, of batch, heads, tokens, depth.
_HEADS_FIRST, _TRANSPOSED, _TOKENS_FIRST = (1, 2, 3), (1, 3, 2), (2, 1, 3)
_DEPTH = 8  # of which the depth is a multiple in GroupQueryAttention; twice that, if it rotates
# Exporters put this number, or a lower one, in place of the scores of hidden tokens. Their weight
# is 0 unless the scores of all other tokens are below -9,000.
_REPLACED = -1e4
_CLOSE = 1e-6  # relative difference of numbers
_MOST_TOKENS = 1 << 13  # of a cache, all of whose positions are tried
_SCORES = Named("scores", ("BATCH_MATMUL", "queries", "keys"))
_PART = OneOf(("DIV", through(_SCORES), "cap#"), ("MUL", through(_SCORES), "part#"))
_LIMITED = OneOf(through(_SCORES), ("MUL", ("TANH", _PART), "cap#"))
_MASKED = OneOf(
    ("ADD", _LIMITED, "mask"),
    ("SELECT_V2", "mask", _LIMITED, "hidden#"),
)
_WEIGHTS: Pattern = ("SOFTMAX", through(_MASKED), {"beta": 1})
_ATTENTION = OneOf(
    ("ATTENTION", "queries", "keys", "values", "mask"),
    ("BATCH_MATMUL", through(_WEIGHTS), "values"),
)


class _UpdatedCache(NamedTuple):
    """The update of a cache by a key or value, its order in memory, and the factor of its reads."""

    update: Op
    order: Order
    factor: float

    @property
    def shape(self) -> tuple[int, ...]:
        """Heads, tokens, and depth."""
        return tuple(self.update.operand(0).shape[axis] for axis in self.order[1:])


class CacheAttention(NamedTuple):
    """Attention: its operands, and the operator that computes its result.

    The mask is added to the scores; or `hidden` replaces scores where the mask is false. Before
    that, scores s become cap * tanh(s / cap), unless the cap is 0.
    """

    queries: Tensor
    factor: float
    keys: _UpdatedCache
    values: _UpdatedCache
    mask: Tensor
    product: Op
    hidden: float | None
    cap: float

    @property
    def options(self) -> CacheOptions:
        """The options of the operator that computes the attention, but for the visible tokens."""
        keys, values = self.keys.order, self.values.order
        return CacheOptions(scale=self.factor, key_order=keys, value_order=values, cap=self.cap)

    def list_written(self) -> list[Tensor]:
        """Return the caches after the step."""
        return [cache.update.outputs[0] for cache in (self.keys, self.values)]

    @property
    def hides_tokens(self) -> bool:
        """Whether the weights of tokens that the mask hides are 0."""
        return self.hidden is None or self.hidden <= _REPLACED


def read_caches(graph: Graph, wanted: Mapping[Tensor, Order]) -> Graph:
    """Return the graph with CACHED_ATTENTION; `wanted` has the orders of the caches."""
    if "DYNAMIC_UPDATE_SLICE" not in graph.codes or not wanted:
        return graph
    found, known = list_attention(graph, wanted), dict[int, CachePositions]()
    while found:
        result = _replace_attention(found, graph, known)
        read = {tensor for op in result.walk_ops() for tensor in op.inputs}
        kept = [each for each in found if read.isdisjoint(each.list_written())]
        if len(kept) == len(found):
            return result
        found = kept
    return graph


def _replace_attention(
    found: Sequence[CacheAttention], graph: Graph, known: dict[int, CachePositions]
) -> Graph:
    """Return the graph with CACHED_ATTENTION in place of attention, if its conditions hold."""
    replaced: dict[Op, list[Op]] = {}
    written: set[Tensor] = set()
    for each in found:
        length = each.keys.shape[1]
        positions = known.setdefault(length, CachePositions(graph, length))
        if ops := _make_attention(each, graph, positions, written):
            replaced |= {each.keys.update: [], each.values.update: [], each.product: ops}
            written |= {*each.list_written()}
    return eliminate_dead_operators(graph.rewrite(lambda op: replaced.get(op, [op])))


def _make_attention(
    found: CacheAttention, graph: Graph, positions: CachePositions, written: Collection[Tensor]
) -> list[Op]:
    """Return the operators that replace attention; none unless conditions 3 and 4 hold.

    `written` are the caches that are outputs of attention already.
    """
    length, caches = found.keys.shape[1], (found.keys, found.values)
    for cache in caches:
        starts = positions.find_rows(cache.update.operand(2))
        expected = np.zeros((length, _AXES))
        expected[:, cache.order[2]] = np.arange(length)
        if starts is None or not np.array_equal(starts, expected):
            return []
    window, position = positions.find_window(found.mask), positions.position
    if window is None or position is None or not found.hides_tokens:
        return []
    rw, y = Rewriter(found.product), found.product.outputs[0]
    tokens = [found.queries, *(cache.update.operand(1) for cache in caches)]
    tokens[:2], tables = _find_rotation(tokens[:2], graph, positions)
    flat = [rw.reshape(t, (1, 1, t.elements), like=t, name="token") for t in tokens]
    place = rw.reshape(position, (1,), like=position, name="position")
    attended = Tensor(f"{y.name}/attended", flat[0].shape, DType.FLOAT32)
    made = found.options.replace(window=window)
    inputs = (*flat, *(cache.update.operand(0) for cache in caches), place, *tables)
    outputs = (attended, *(replace(t) if t in written else t for t in found.list_written()))
    rw.ops.append(Op("CACHED_ATTENTION", rw.source.index, inputs, outputs, made=made))
    rw.reshape(attended, output=y)
    return rw.ops


def _find_rotation(
    tokens: list[Tensor], graph: Graph, positions: CachePositions
) -> tuple[list[Tensor], list[Tensor]]:
    """Return queries and keys before they are rotated, and cosines and sines of all positions.

    Returns them as they are, and no tables, unless both are rotated by angles of the position.
    """
    rotated = [graph.producers.trace(t, "RESHAPE") for t in tokens]
    pair = [find_producer(t, graph, "ROTARY_EMBEDDING") for t in rotated]
    if NO_OP in pair or pair[0].operand(0).shape[-1] % (2 * _DEPTH):
        return tokens, []
    tables, others = ([positions.make_table(t) for t in op.present[1:]] for op in pair)
    # Equal tables are one constant.
    if tables != others or None in tables:
        return tokens, []
    return [op.operand(0) for op in pair], [table for table in tables if table]


def list_attention(graph: Graph, wanted: Mapping[Tensor, Order]) -> list[CacheAttention]:
    """Return attention for which conditions 1, 2 and 5 hold."""
    matcher, listed = GraphMatcher(graph), []
    for op in graph.ops:
        if op.is_builtin("ATTENTION", "BATCH_MATMUL"):
            operands = (_read_operands(each, wanted) for each in matcher.find_all(op, _ATTENTION))
            listed.append(next(filter(None, operands), None))
    return [each for each in listed if each]


def _read_operands(found: Match, wanted: Mapping[Tensor, Order]) -> CacheAttention | None:
    """Return attention, None if its operands do not fit together."""
    last, graph, tensors = found.last, found.graph, found.tensors
    factor = last.read_made(AttentionOptions).scale if last.code == "ATTENTION" else 1.0
    queries = Matrices(tensors["queries"], factor=factor)
    key_axes = value_axes = _TOKENS_FIRST
    if last.code == "BATCH_MATMUL":
        product = graph.producers[tensors["scores"]]
        if last.options.adj_x or product.options.adj_x:
            return None
        queries = scale_matrices(queries, graph, "RESHAPE")
        key_axes = _HEADS_FIRST if product.options.adj_y else _TRANSPOSED
        value_axes = _TRANSPOSED if last.options.adj_y else _HEADS_FIRST
    keys = _find_cache(tensors["keys"], key_axes, graph, wanted)
    values = _find_cache(tensors["values"], value_axes, graph, wanted)
    if not keys or not values or keys.shape != values.shape or values.factor != 1:
        return None
    factor = queries.factor * keys.factor
    (heads, length, depth), size = keys.shape, queries.tensor.elements
    mask = _find_mask(tensors["mask"], length, graph) if length <= _MOST_TOKENS else None
    fits = size % (heads * depth) == depth % _DEPTH == 0 and found.output.elements == size
    if not mask or not fits or factor <= 0:
        return None
    hidden, cap = found.number("hidden#"), _read_cap(found)
    if cap is None or (hidden is None and "hidden#" in tensors):
        return None
    return CacheAttention(queries.tensor, factor, keys, values, mask, last, hidden, cap)


def _read_cap(found: Match) -> float | None:
    """Return the cap of the scores, 0 if there is none, None if the numbers are no cap."""
    if "cap#" not in found.tensors:
        return 0.0
    cap, part = found.number("cap#") or 0.0, found.number("part#")
    is_inverse = part is None or abs(part * cap - 1) < _CLOSE
    return cap if 0 < cap < inf and is_inverse else None


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
) -> _UpdatedCache | None:
    """Return the cache with these axes of batch, heads, tokens, depth, None if there is none.

    Between the cache and the tensor are only RESHAPE, TRANSPOSE and products by a number, and
    nothing but axes of one element changes place in a RESHAPE.
    """
    axes = [*range(len(squeeze_shape(tensor.shape)))]
    tensor, _, factor = scale_matrices(Matrices(tensor), graph)
    # Several layers may read a cache that is moved once.
    while (move := graph.producers.find(tensor)).is_builtin("RESHAPE", "TRANSPOSE"):
        moved = squeeze_order(move)
        if moved is None:
            return None
        axes = [moved[axis] for axis in axes]
        tensor, _, factor = scale_matrices(Matrices(move.operand(0), factor=factor), graph)
    update = graph.producers.find(tensor)
    cache, row, order = update.operand(0), update.operand(1), wanted.get(tensor, ())
    is_cache = cache in graph.inputs and tensor in graph.outputs and wanted.get(cache) == order
    if not update.is_builtin("DYNAMIC_UPDATE_SLICE") or not is_cache or len(order) != _AXES:
        return None
    if not are_fixed_floats(cache, row, tensor):
        return None
    (batch, heads, _, depth), written = ([t.shape[i] for i in order] for t in (cache, row))
    is_token = batch == 1 and written == [1, heads, 1, depth]
    if order[0] != 0 or order[1] > order[3] or not is_token:
        return None
    kept = [axis for axis, size in enumerate(cache.shape) if size != 1]
    expected = [order[place] for place in places if order[place] in kept]
    return (
        _UpdatedCache(update, order, factor) if [kept[axis] for axis in axes] == expected else None
    )
