"""odml.scaled_dot_product_attention: the attention of on-device language models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tflite2onnx.layout import Frame, pin_operand
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.tensor import DType

_AXES = 4
_HEADS_FIRST, _TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)


class DotProductAttention(Operator):
    """odml.scaled_dot_product_attention: softmax(scale * q k + mask) v, for each head.

    Queries, keys and values are [batch, time, heads, depth], the mask is [batch, heads, time,
    time]. Keys and values may have fewer heads; neighbouring heads of the queries then share one.
    This is how LiteRT's default delegate computes. The built-in kernel reads a matrix in the wrong
    order.
    """

    codes = ("odml.scaled_dot_product_attention",)
    custom = True
    category = Category.IMPLICIT

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*self.input(0).shape[:3], self.input(2).shape[3])]

    def check(self) -> None:
        q, k, v, mask = (self.input(i) for i in range(4))
        for tensor in (q, k, v, mask):
            expect(tensor, tensor.shape, DType.FLOAT32)
        if {t.rank for t in (q, k, v, mask)} != {_AXES}:
            ranks = [t.rank for t in (q, k, v, mask)]
            raise OperatorError(f"query, key, value and mask must have 4 axes, got {ranks}")
        (batch, times, heads, depth), (_, keys, groups, _) = q.shape, k.shape
        expect(k, (batch, keys, groups, depth), DType.FLOAT32)
        expect(v, (batch, keys, groups, v.shape[3]), DType.FLOAT32)
        if not groups or heads % groups or (groups == 1 and batch != 1 and heads != 1):
            raise OperatorError(
                "query heads must be a multiple of key heads, and the batch must be 1 if they share"
                f" one key head, got {heads} and {groups} heads, batch {batch}"
            )
        scores = (batch, heads, times, keys)
        if np.broadcast_shapes(mask.shape, scores) != scores:
            raise OperatorError(
                f"the mask must broadcast to {list(scores)}, got {list(mask.shape)}"
            )
        expect_type(self.output, (DType.FLOAT32,))

    def frames(self) -> Sequence[Frame]:
        return [
            pin_operand(0, _HEADS_FIRST),
            pin_operand(1, _TRANSPOSED),
            pin_operand(2, _HEADS_FIRST),
            pin_operand(~0, _HEADS_FIRST),
        ]

    def emit(self, g: Builder, y: View, q: View, k: View, v: View, mask: View) -> Value:
        batch, heads, times, depth = q.shape
        groups, keys = k.shape[1], k.shape[3]
        option = float(self.options.get("scale", 0))
        scale = option if option > 0 else 1 / math.sqrt(depth)
        query = g.Mul(q, g.scalar(scale, DType.FLOAT32))
        shared = groups not in (1, heads)
        if shared:  # the query heads that share keys become rows of one matrix
            query = g.reshape(query, (batch, groups, heads // groups * times, depth))
        scores = g.MatMul(query, k)
        if shared:
            scores = g.reshape(scores, (batch, heads, times, keys))
        weights = g.Softmax(g.Add(scores, mask), axis=-1)
        if shared:
            weights = g.reshape(weights, (batch, groups, heads // groups * times, keys))
        product = g.MatMul(weights, v)
        return g.reshape(product, y.shape) if shared else product
