"""odml.scaled_dot_product_attention, the attention of language models."""

from math import inf, prod, sqrt

import numpy as np

from tflite2onnx.builder.builder import NeedsReshape
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.layout import Order
from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.tensor import DType

_OPERANDS = 4
_HEADS_FIRST, _TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)


class ScaledAttention(Operator):
    """softmax(scale * q k + mask) v, for each head.

    Queries, keys and values are [batch, time, heads, depth], the mask is [batch, heads, time,
    time]. The mask may be missing. If keys and values have fewer heads, neighbouring heads of the
    queries share one of them.
    """

    operands = (
        "float32 [batch times heads depth], float32 [batch keys groups depth],"
        "float32 [batch keys groups width], float32? [masks rows columns shares]"
        "-> float32 [batch times heads width]"
    )

    def check(self) -> None:
        q, k, _, *masks = (t for t in self.op.present)
        (batch, times, heads, _), (_, keys, groups, _) = q.shape, k.shape
        if not groups or heads % groups or (groups == 1 and batch != 1 and heads != 1):
            raise OperatorError(
                "query heads must be a multiple of key heads, and the batch must be 1 if they share"
                f" one key head, got {heads} and {groups} heads, batch {batch}"
            )
        scores = (batch, heads, times, keys)
        for mask in masks:
            if np.broadcast_shapes(mask.shape, scores) != scores:
                shapes = f"{list(scores)}, got {list(mask.shape)}"
                raise OperatorError(f"the mask must broadcast to {shapes}")

    def attend(
        self, g: Builder, q: View, k: View, v: View, mask: View | None = None
    ) -> NeedsReshape:
        """Return attention of all tokens."""
        whole = mask is None or mask.shape[2:] == (q.shape[1], k.shape[1])
        if g.opset >= find_first_opset("Attention") and whole and not self.cap:
            return self._fuse(g, q, k, v, mask)
        batch, times, heads, depth = q.shape
        keys, groups = k.shape[1:3]
        # Runtimes fuse MatMul with a Transpose of three axes, but not of four.
        lead = (batch,) if batch != 1 else ()
        query = _move_axes(g, q, _HEADS_FIRST)
        if self._scale != 1:
            query = g.Mul(query, g.scalar(self._scale, DType.FLOAT32))
        shared = groups not in (1, heads)
        if shared:  # the query heads that share keys become the rows of one matrix
            query = g.reshape(query, (*lead, groups, heads // groups * times, depth))
        scores = g.MatMul(query, _move_axes(g, k, _TRANSPOSED))
        if shared:
            scores = g.reshape(scores, (*lead, heads, times, keys))
        added = mask if mask is None or lead else mask.reshape(mask.shape[1:])
        weights = self.weigh(g, scores, added)
        if shared:
            weights = g.reshape(weights, (*lead, groups, heads // groups * times, keys))
        product = g.MatMul(weights, _move_axes(g, v, _HEADS_FIRST))
        if shared:
            product = g.reshape(product, (*lead, heads, times, v.shape[-1]))
        return NeedsReshape(g.Transpose(product, perm=_drop_batch(_HEADS_FIRST, batch)))

    def weigh(
        self, g: Builder, scores: Value, mask: View | Value | None, hidden: float | None = None
    ) -> Value:
        """Return the weights of values; `hidden` replaces scores where a mask of bool is false."""
        if self.cap:
            cap = g.scalar(self.cap, DType.FLOAT32)
            scores = g.Mul(g.Tanh(g.Div(scores, cap)), cap)
        if hidden is not None and mask is not None:
            scores = g.Where(mask, scores, g.scalar(hidden, DType.FLOAT32))
        elif mask is not None:
            scores = g.Add(scores, mask)
        return g.Softmax(scores, axis=-1)

    def _fuse(self, g: Builder, q: View, k: View, v: View, mask: View | None) -> NeedsReshape:
        """Return Attention, which reads the heads from the last axis."""
        rows = [x.reshape((*x.shape[:2], prod(x.shape[2:]))) for x in (q, k, v)]
        heads, groups = q.shape[2], k.shape[2]
        counts = {"q_num_heads": heads, "kv_num_heads": groups}
        return NeedsReshape(g.Attention(*rows, mask, **counts, scale=self._scale))

    @property
    def given_scale(self) -> float:
        """The factor of the scores, 0 if there is none."""
        return self._read_float("scale")

    @property
    def _scale(self) -> float:
        option = self.given_scale
        return option if option > 0 else 1 / sqrt(self.input(0).shape[-1])

    @property
    def cap(self) -> float:
        """The largest score, before the mask is added; 0 if there is none."""
        return self._read_float("logit_cap")

    def _read_float(self, name: str) -> float:
        """Return an option; 0 for integers, which LiteRT's delegate ignores."""
        option = self.options.get(name, 0.0)
        return float(option) if isinstance(option, (float, np.floating)) else 0.0


class DotProductAttention(ScaledAttention):
    """odml.scaled_dot_product_attention: softmax(scale * q k + mask) v, for each head.

    With a `logit_cap` c, the scores s become c tanh(s / c) before the mask is added. LiteRT's
    default delegate computes this formula. The built-in kernel reads a matrix in the wrong order,
    and ignores the cap.
    """

    codes = ("odml.scaled_dot_product_attention",)

    def check(self) -> None:
        for operand in range(_OPERANDS):
            self.input(operand)  # raises OperatorError if it is missing
        if "logit_cap" in self.options and not 0 < self.cap < inf:
            cap = self.options["logit_cap"]
            raise OperatorError(f"its logit_cap must be a positive float, got {cap!r}")
        super().check()

    def emit(self, g: Builder, y: View, *xs: View) -> NeedsReshape:
        return self.attend(g, *xs)


def _move_axes(g: Builder, x: View, order: Order) -> Value:
    """Return a tensor in an order; without its first axis, if the size of this axis is 1."""
    batch, *sizes = x.shape
    value = x.value if batch != 1 else x.reshape(sizes)
    return g.Transpose(value, perm=_drop_batch(order, batch))


def _drop_batch(order: Order, batch: int) -> list[int]:
    """Return an order without the first axis, if the size of this axis is 1."""
    return list(order) if batch != 1 else [axis - 1 for axis in order[1:]]
