"""Attention, linear attention and rotations of language models, which forms make."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.builder.builder import NeedsReshape
from tflite2onnx.layout import Axes, Frame, Order, axis_names, pin_operand
from tflite2onnx.made_options import MadeOptions
from tflite2onnx.op.base import Builder, Category, OutputShape, Value, View
from tflite2onnx.op.linear.attention import ScaledAttention
from tflite2onnx.op.traits import DynamicShape, MadeOperator
from tflite2onnx.tensor import DType, Shape, Sizes

# Operators of ONNX Runtime. The CPU provider has them in versions 1.20 to 1.32.
_DOMAIN = "com.microsoft"
_ROTATED = 3  # operands of a rotation by the angles of each position
_ROWS = 16  # The rows that a product computes at once.
# The axes of heads, tokens and depth in a cache.
_HEADS_FIRST, _TOKENS_FIRST, _TOKENS_LAST = (1, 2, 3), (2, 1, 3), (1, 3, 2)


class RotationOptions(MadeOptions):
    """The axis of the positions, 1 or 2."""

    codes = ("ROTARY_EMBEDDING",)
    positions: int = 1


class AttentionOptions(MadeOptions):
    """How tokens attend to each other.

    Attributes:
        scale: the factor of the scores; 1 / sqrt(depth) if it is 0.
        key_order, value_order: the axes of batch, heads, tokens and depth in the caches.
        window: a token sees as many last tokens up to its position, all if it is 0.
        cap: scores s become cap * tanh(s / cap), unless it is 0.
        hidden: what replaces the scores where a mask of bool is false.
        is_long: the caches are too long for the processor's own caches.
    """

    codes = ("ATTENTION",)
    scale: float = 0.0
    key_order: Order = ()
    value_order: Order = ()
    window: int = 0
    cap: float = 0.0
    hidden: float | None = None
    is_long: bool = False


class RotaryEmbedding(MadeOperator, DynamicShape):
    """ROTARY_EMBEDDING: both halves a and b of each row become a cos - b sin and b cos + a sin.

    The rows are [batch, heads, positions, depth] or [batch, positions, heads, depth]; see
    `RotationOptions`. The cosines and the sines are [positions, depth / 2].
    If there is a fourth input, x has a single row, whose position is this input, and the cosines
    and sines are given for all positions.
    """

    codes = ("ROTARY_EMBEDDING",)
    category = Category.ATTRIBUTE
    operands = (
        "float32 [batch a b depth], float32 [positions half], float32 [positions half],"
        "int32? [...] -> float32"
    )
    keeps_shape = True

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        swapped = tuple(names[i] for i in (0, 2, 1, 3))

        def is_legal(label: Axes) -> bool:
            return label in (names, swapped)

        return [Frame({0: names, ~0: names}, names, legal=is_legal)]

    def find_mixed_axes(self, operand: int) -> Collection[int]:
        return (-1,)

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        """Return the axis of the positions, which is the first axis of cosines and sines."""
        positions = self.op.read_made(RotationOptions).positions
        places = [positions if i in (0, ~0) else 0 for i in (operand, other)]
        same = (operand in (0, ~0)) == (other in (0, ~0))
        return axis if same else places[1] if axis == places[0] else None

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        positions = self.op.read_made(RotationOptions).positions
        return axis == (positions if operand in (0, ~0) else 0) and len(self.op.present) == _ROTATED

    def emit(
        self, g: Builder, y: View, x: View, cosines: View, sines: View, place: View | None = None
    ) -> Value | NeedsReshape:
        positions = self.op.read_made(RotationOptions).positions
        heads = x.tensor.shape[3 - positions]
        batch, depth = x.tensor.shape[0], x.tensor.shape[3]
        rows = x.axis(positions) == 1
        tables, places = [cosines.value, sines.value], g.constant(np.zeros(1, np.int64))
        if batch == 1 and (place is not None or cosines.sizes[0] == 1):
            shape: Sizes = (1, 1, heads, depth)  # The heads are rows before and after the node.
            rows = False
            value = x.reshape(shape)
            if place is None:
                tables = [g.Expand(table, [heads, depth // 2]) for table in tables]
            else:
                position = g.recast(place.reshape((1, 1)), DType.INT32, DType.INT64)
                places = g.Expand(position, [1, heads])
        else:
            # The heads are an axis before the positions, or are joined with the last of three axes.
            shape = (batch, x.sizes[1], heads * depth) if rows else x.sizes
            value = x.reshape(shape)
        (rotated,) = g.node_outputs(
            "RotaryEmbedding",
            1,
            value,
            places,
            *tables,
            domain=_DOMAIN,
            num_heads=heads if rows else None,
        )
        return NeedsReshape(g.annotate(rotated, DType.FLOAT32, shape))


class Attention(MadeOperator, ScaledAttention, DynamicShape):
    """ATTENTION: softmax(scale * queries keys + mask) values, for each head.

    The inputs are queries, keys, values, a mask, the position, caches of keys and values, cosines
    and sines. The operands that are present tell three forms apart:

    - All tokens: queries, keys, values and perhaps a mask, as in `ScaledAttention`.
    - One token that reads caches: the options have orders, in which the keys and the values are
      caches. The queries are [heads, shares, depth]; `shares` of them read the same head. The mask
      is added to the scores of all queries, or it is bool. With a position in place of a mask only
      the tokens that are seen are read.
    - Tokens whose keys and values are first written to the caches, which are inputs and the outputs
      after the first. Queries, keys and values are [1, tokens, heads * depth], and follow each
      other at the positions. If there are cosines and sines of all positions, [length, depth / 2],
      queries and keys are rotated (`ROTARY_EMBEDDING`).
    """

    codes = ("ATTENTION",)
    operands = (
        "float32 [... n], float32, float32, float32|bool?, int32?, float32?, float32?, float32?,"
        "float32? -> float32 [... m], float32?, float32?"
    )

    @cached_property
    def made(self) -> AttentionOptions:
        """The options."""
        return self.op.read_made(AttentionOptions)

    @property
    def given_scale(self) -> float:
        return self.made.scale

    @property
    def cap(self) -> float:
        return self.made.cap

    @property
    def _returns_caches(self) -> bool:
        return len(self.op.outputs) > 1

    def check(self) -> None:
        if not self.made.key_order:
            super().check()

    def infer_outputs(self) -> Sequence[OutputShape]:
        y, *caches = self.op.outputs
        return [(*self.input(0).shape[:-1], y.shape[-1]), *(t.shape for t in caches)]

    def frames(self) -> Sequence[Frame]:
        orders = (self.made.key_order, self.made.value_order) * self._returns_caches
        pairs = zip((5, 6, ~1, ~2), orders * 2, strict=False)
        return [pin_operand(operand, order) for operand, order in pairs]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return self._returns_caches and (operand, axis) in {(0, 1), (1, 1), (2, 1), (~0, 1), (4, 0)}

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View) -> tuple[Value | NeedsReshape, ...]:
        if self._returns_caches:
            return self._write_caches(g, *xs)
        attend = self._read_caches if self.made.key_order else self.attend
        return (attend(g, *xs),)

    def _write_caches(
        self, g: Builder, queries: View, keys: View, values: View, *others: View
    ) -> tuple[Value, ...]:
        """Return attention, and the caches after keys and values are written to them."""
        _, position, key_cache, value_cache, *rotation = others
        depth = key_cache.shape[-1]
        several = queries.tensor.symbols or queries.shape[1] > 1
        last = g.ReduceMax(position, keepdims=1) if several else position
        total = g.Add(last, g.constant(np.ones(1, np.int32)))
        heads, scale = queries.shape[-1] // depth, np.float32(self.made.scale)
        optional: tuple[View | Value | None, ...] = (*rotation,)
        rows: View | Value = queries
        if not several:
            # With sinks, ONNX Runtime multiplies a token by the caches as matrices, and copies no
            # cache if the factor is 1. Its kernel without sinks takes up to 1.3 times as long for a
            # step, and less time for several tokens. These sinks change no number.
            rows, scale = g.Mul(queries, g.constant(np.asarray(scale))), np.float32(1)
            sinks = g.constant(np.full(heads, np.finfo(np.float32).min, np.float32))
            optional = (*(rotation or (None, None)), None, None, sinks)
        return g.node_outputs(
            "GroupQueryAttention",
            3,
            *(rows, keys, values, key_cache, value_cache, last),
            total,
            *optional,
            domain=_DOMAIN,
            num_heads=heads,
            kv_num_heads=key_cache.shape[1],
            scale=float(scale),
            local_window_size=self.made.window or None,
            softcap=self.made.cap or None,
            do_rotary=1 if rotation else None,
        )

    def _read_caches(
        self,
        g: Builder,
        queries: View,
        keys: View,
        values: View,
        mask: View | None = None,
        position: View | None = None,
    ) -> NeedsReshape:
        """Return the attention of one token."""
        made = self.made
        orders = made.key_order, made.value_order
        tokens, caches = keys.shape[orders[0][2]], [keys.value, values.value]
        if position is not None:
            ends = self._find_ends(g, position)
            pairs = zip(caches, orders, strict=True)
            caches = [g.Slice(cache, *ends, [order[2]]) for cache, order in pairs]
            tokens = -1
        scores, shape = self._score(g, queries, caches[0], tokens)
        weights = self.weigh(g, scores, mask and mask.value, made.hidden)
        heads, shares, _ = queries.shape
        single = made.is_long and made.value_order[1:] != _TOKENS_LAST
        wanted = (heads, shares, 1, tokens) if single else (heads, shares, tokens)
        weights = weights if shape == wanted else g.reshape(weights, wanted)
        return NeedsReshape(self._weigh(g, queries.shape, weights, caches[1], tokens))

    def _find_ends(self, g: Builder, position: View) -> tuple[Value, Value]:
        """Return the index of the first visible token, and the index after the last."""
        end = g.Add(g.recast(position, DType.INT32, DType.INT64), [1])
        window = self.made.window
        start = g.Max(g.Sub(end, [window]), [0]) if window else g.ints([0])
        return start, end

    def _score(
        self, g: Builder, queries: View, keys: Value, tokens: int
    ) -> tuple[Value, tuple[int, ...]]:
        """Return the scores of all queries, and their shape; the last axis are the tokens."""
        heads, shares, depth = queries.shape
        scale, several = self.made.scale, self.made.is_long and shares > 1
        shape = (heads, shares, tokens)
        places = _find_places(self.made.key_order, heads)
        if places == _TOKENS_FIRST and several and heads * shares <= _ROWS:
            spread = (scale * np.eye(heads)[:, None, :, None]).astype(np.float32)
            rows = g.Mul(queries.reshape((heads, shares, 1, depth)), g.constant(spread))
            rows = g.reshape(rows, (heads * shares, heads * depth))
            matrix = g.reshape(keys, (tokens, heads * depth))
            turned = g.Transpose(_multiply(g, matrix, rows, transB=1), perm=[1, 0])
            return turned, (heads * shares, tokens)
        if places == _TOKENS_FIRST:
            moved = g.reshape(keys, (tokens, heads, depth))
            alike = {"alpha": scale, "transB": 1, "transBatchB": 1}
            return _multiply(g, queries.value, moved, **alike), shape
        if places == _TOKENS_LAST:
            rows = queries.reshape((heads, shares, 1, depth))
            matrices = g.reshape(keys, (heads, 1, depth, tokens))
            return _multiply(g, rows, matrices, alpha=scale), (heads, shares, 1, tokens)
        matrices = g.reshape(keys, (heads, tokens, depth))
        if several:
            product = _multiply(g, matrices, queries.value, alpha=scale, transB=1)
            return g.Transpose(product, perm=[0, 2, 1]), shape
        return _multiply(g, queries.value, matrices, alpha=scale, transB=1), shape

    def _weigh(self, g: Builder, shape: Shape, weights: Value, values: Value, tokens: int) -> Value:
        """Return the sums of values, weighted by the softmax of the scores."""
        heads, shares, depth = shape
        places, is_long = _find_places(self.made.value_order, heads), self.made.is_long
        if places == _TOKENS_LAST:
            matrices = g.reshape(values, (heads, depth, tokens))
            if is_long and shares > 1:
                return g.Transpose(_multiply(g, matrices, weights, transB=1), perm=[0, 2, 1])
            return _multiply(g, weights, matrices, transB=1)
        single = (1,) * is_long  # each product has a single row
        if places == _TOKENS_FIRST:
            rows = g.reshape(values, (tokens, heads, *single, depth))
            return _multiply(g, weights, rows, transBatchB=1)
        return g.MatMul(weights, g.reshape(values, (heads, *single, tokens, depth)))


class LinearAttention(MadeOperator, DynamicShape):
    """LINEAR_ATTENTION: `gated_delta_update` of all tokens, which `fuse_linear_attention` makes.

    The heads of queries, keys and values are joined with the last axis. The CPU provider of ONNX
    Runtime has it since version 1.25.1.
    """

    codes = ("LINEAR_ATTENTION",)
    operands = (
        "float32 [batch tokens n], float32 [batch tokens n], float32 [batch tokens m],"
        "float32 [batch tokens heads], float32 [batch tokens heads],"
        "float32 [batch heads depth width]"
        "-> float32 [batch tokens m], float32 [batch heads depth width]"
    )
    tflite = "NTQ, NTQ, NTV, NTH, NTH, NHDE -> NTV, NHDE"
    dynamic_axes = "NT"

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View) -> tuple[Value, ...]:
        *rows, rate, log_decay, state = xs
        heads, depth = state.shape[1:3]
        return g.node_outputs(
            "LinearAttention",
            len(ys),
            *(*rows, state, log_decay, rate),
            domain=_DOMAIN,
            q_num_heads=rows[0].shape[-1] // depth,
            kv_num_heads=heads,
            scale=1.0,
        )


def _find_places(order: Sequence[int], heads: int) -> Sequence[int]:
    """Return the axes of heads, tokens and depth of a cache; a single head is the first axis."""
    places = tuple(order[1:])
    return _HEADS_FIRST if heads == 1 and places == _TOKENS_FIRST else places


def _multiply(g: Builder, a: Value, b: Value, **attributes: float) -> Value:
    """Return a product of matrices that may be transposed in memory."""
    (product,) = g.node_outputs("FusedMatMul", 1, a, b, domain=_DOMAIN, **attributes)
    return product
