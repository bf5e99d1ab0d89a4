"""Recognise attention of one token over caches of keys and values.

    keys = DYNAMIC_UPDATE_SLICE(key cache, key of the token, position)      and so the values
    y = softmax(scale * queries keys + mask) values

A step of a language model consists of it. It is recognised if

1. the caches are inputs of the graph, of batch 1, in which DYNAMIC_UPDATE_SLICE writes the keys and
   values of the token; the updated caches are outputs of the graph;
2. RESHAPE, TRANSPOSE and products by numbers may stand before the products of matrices, but no
   product after the values. In these products neighbouring heads of the queries share heads of keys
   and values (`share_heads`). The scores s may become cap * tanh(s / cap);
3. a mask is added to the scores, or replaces them by a number where it is false;
4. all tensors are float32 and have fixed sizes, the depth is a multiple of 8, and no other operator
   reads the tensors between. The caches may be read by the attention of several layers.
"""

from math import inf
from typing import NamedTuple

from tflite2onnx.graph import Graph, Op
from tflite2onnx.layout import Order
from tflite2onnx.passes.operands import are_fixed_floats, squeeze_order, squeeze_shape
from tflite2onnx.passes.patterns.matching import GraphMatcher, Match, Named, OneOf, Pattern, Through
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_attention import Matrices, scale_matrices
from tflite2onnx.targets.onnxruntime.operators.attention import AttentionOptions
from tflite2onnx.tensor import Shape, Tensor

_AXES = 4
# Axes of keys and values in products of matrices, of batch, heads, tokens, depth.
_HEADS_FIRST, _TRANSPOSED, _TOKENS_FIRST = (1, 2, 3), (1, 3, 2), (2, 1, 3)
DEPTH = 8  # of which the depth is a multiple in GroupQueryAttention
# Exporters put this number, or a lower one, in place of the scores of hidden tokens. Their weight
# is 0 unless the scores of all other tokens are below -9,000.
_REPLACED = -1e4
_CLOSE = 1e-6  # relative difference of numbers
_MOST_TOKENS = 1 << 13  # of a cache, all of whose positions are tried
_SCORES = Named("scores", ("BATCH_MATMUL", "queries", "keys"))
_PART = OneOf(("DIV", Through(_SCORES), "cap#"), ("MUL", Through(_SCORES), "part#"))
_LIMITED = OneOf(Through(_SCORES), Through(("MUL", Through(("TANH", Through(_PART))), "cap#")))
_MASKED = OneOf(
    ("ADD", _LIMITED, "mask"),
    ("SELECT_V2", "mask", _LIMITED, "hidden#"),
)
_WEIGHTS: Pattern = ("SOFTMAX", Through(_MASKED), {"beta": 1})
_ATTENTION = OneOf(
    ("ATTENTION", "queries", "keys", "values", "mask"),
    ("BATCH_MATMUL", Through(_WEIGHTS), "values"),
)


class CacheAttention(NamedTuple):
    """Attention: the operator that computes it, its operands, and its options.

    The updates write the key and the value of the token to the caches.
    """

    product: Op
    queries: Tensor
    updates: tuple[Op, Op]
    mask: Tensor
    made: AttentionOptions

    @property
    def shape(self) -> Shape:
        """The heads, tokens and depth of the caches."""
        return _list_sizes(self.updates[0].operand(0), self.made.key_order)[1:]

    @property
    def orders(self) -> tuple[Order, Order]:
        """The axes of batch, heads, tokens and depth of both caches."""
        return self.made.key_order, self.made.value_order

    @property
    def sources(self) -> list[Tensor]:
        """The caches before the step."""
        return [update.operand(0) for update in self.updates]

    @property
    def written(self) -> list[Tensor]:
        """The caches after the step."""
        return [update.outputs[0] for update in self.updates]

    @property
    def hides_tokens(self) -> bool:
        """Whether the weights of tokens that the mask hides are 0."""
        return self.made.hidden is None or self.made.hidden <= _REPLACED


class _UpdatedCache(NamedTuple):
    """The update of a cache by a key or value, its order in memory, and the factor of its reads."""

    update: Op
    order: Order
    factor: float


def list_attention(graph: Graph) -> list[CacheAttention]:
    """Return the attention of one token in a graph."""
    matcher, listed = GraphMatcher(graph), []
    for op in graph.ops:
        if op.is_builtin("ATTENTION", "BATCH_MATMUL"):
            operands = (_read_operands(each) for each in matcher.find_all(op, _ATTENTION))
            listed.append(next(filter(None, operands), None))
    return [each for each in listed if each]


def _read_operands(found: Match) -> CacheAttention | None:
    """Return attention; None if its operands do not fit together."""
    last, graph, tensors = found.last, found.graph, found.tensors
    factor = last.read_made(AttentionOptions).scale if last.code == "ATTENTION" else 1.0
    queries = Matrices(tensors["queries"], factor=factor)
    key_axes = value_axes = _TOKENS_FIRST
    if last.code == "BATCH_MATMUL":
        product = graph.producers[tensors["scores"]]
        if last.options.adj_x or product.options.adj_x:
            return None
        queries = scale_matrices(queries, graph, one_token=True)
        key_axes = _HEADS_FIRST if product.options.adj_y else _TRANSPOSED
        value_axes = _TRANSPOSED if last.options.adj_y else _HEADS_FIRST
    keys = _find_cache(tensors["keys"], key_axes, graph)
    values = _find_cache(tensors["values"], value_axes, graph)
    if not keys or not values or values.factor != 1:
        return None
    shapes = [_list_sizes(each.update.operand(0), each.order) for each in (keys, values)]
    factor = queries.factor * keys.factor
    (_, heads, length, depth), size = shapes[0], queries.tensor.elements
    mask = _find_mask(tensors["mask"], length, graph) if length <= _MOST_TOKENS else None
    fits = size % (heads * depth) == depth % DEPTH == 0 and found.output.elements == size
    if not mask or not fits or factor <= 0 or shapes[0] != shapes[1]:
        return None
    hidden, capped = found.number("hidden#"), _read_cap(found)
    if not capped or (hidden is None and "hidden#" in tensors):
        return None
    cap, part = capped
    made = AttentionOptions(
        scale=factor * part, key_order=keys.order, value_order=values.order, cap=cap, hidden=hidden
    )
    return CacheAttention(last, queries.tensor, (keys.update, values.update), mask, made)


def _read_cap(found: Match) -> tuple[float, float] | None:
    """Return the cap of the scores, 0 if there is none, and a factor of the scores before it.

    The factor is not 1 if the scores are multiplied by another number than the inverse of the cap,
    as by one that is rounded to float16. Returns None if the numbers are no cap.
    """
    if "cap#" not in found.tensors:
        return 0.0, 1.0
    cap, part = found.number("cap#") or 0.0, found.number("part#")
    factor = 1.0 if part is None or abs(part * cap - 1) < _CLOSE else part * cap
    return (cap, factor) if 0 < cap < inf and 0 < factor < inf else None


def _find_mask(tensor: Tensor, length: int, graph: Graph) -> Tensor | None:
    """Return the mask of a token, of one element for each token of the cache.

    CONCATENATION may repeat it for the queries that share a head, and RESHAPE may follow.
    """
    while tensor.elements != length:
        op = graph.producers.find(graph.producers.trace(tensor, "RESHAPE"))
        repeats = op.is_builtin("CONCATENATION") and {*op.inputs} == {op.operand(0)}
        if not repeats or op.operand(0).shape[-1:] != (length,) or op.activation != "NONE":
            return None
        tensor = op.operand(0)
    return tensor if tensor.shape[-1:] == (length,) else None


def _find_cache(tensor: Tensor, places: Order, graph: Graph) -> _UpdatedCache | None:
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
    cache, order = update.operand(0), _find_axes(update)
    if not order or cache not in graph.inputs or tensor not in graph.outputs:
        return None
    if cache.shape[0] != 1 or not are_fixed_floats(cache, update.operand(1), tensor):
        return None
    kept = [axis for axis, size in enumerate(cache.shape) if size != 1]
    expected = [order[place] for place in places if order[place] in kept]
    fits = [kept[axis] for axis in axes] == expected
    return _UpdatedCache(update, order, factor) if fits else None


def _find_axes(update: Op) -> Order:
    """Return the axes of batch, heads, tokens and depth of a cache, () if there are others.

    One token is written. The heads are before the depth.
    """
    sizes, written = update.operand(0).shape, update.operand(1).shape
    is_update = update.is_builtin("DYNAMIC_UPDATE_SLICE") and len(sizes) == len(written) == _AXES
    axes = range(1, _AXES) if is_update else ()
    tokens = [i for i in axes if sizes[i] != written[i]]
    heads_depth = [i for i in axes if sizes[i] == written[i]]
    is_token = len(tokens) == 1 and written[tokens[0]] == written[0] == 1
    return (0, heads_depth[0], *tokens, heads_depth[1]) if is_token else ()


def _list_sizes(tensor: Tensor, order: Order) -> Shape:
    return tuple(tensor.shape[axis] for axis in order)
