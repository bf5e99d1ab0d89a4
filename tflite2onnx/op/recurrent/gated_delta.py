"""LiteRT's custom operators for gated delta networks, the linear attention of Qwen 3.5.

The formulas are in litert/experimental/custom_ops/gated_delta_net of LiteRT.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.op.recurrent.base import Shaped, scan
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape


class GatedDeltaUpdate(DynamicShape):
    """gated_delta_update: the state S of each head is updated by a token after the other.

    A token has a query q, a key k, a value v, a rate b and a logarithm g of a decay. It computes

        S = exp(g) S,  S = S + k (b (v - k S)),  output = q S

    with rows q, k and v, and a state [depth, width]. Neighbouring heads of the values may share a
    head of the queries and keys. A token with g > 0 or b < 0 is padding: LiteRT takes 0 in place of
    these numbers. (Versions of LiteRT before this rule use the numbers as they are.)

    One token takes 9 nodes. Several tokens take a Scan, so the sums are those of LiteRT's kernel;
    forms in blocks of tokens need differences of sums of g, which are less exact.
    """

    codes = ("gated_delta_update", "custom_call.gated_delta_update")
    operands = (
        "float32 [batch groups tokens depth], float32 [batch groups tokens depth],"
        "float32 [batch heads tokens width], float32 [batch heads tokens],"
        "float32 [batch heads tokens], float32 [batch heads depth width]"
        "-> float32 [batch heads tokens width], float32 [batch heads depth width]"
    )
    tflite = "NGTD, NGTD, NHTE, NHT, NHT, NHDE -> NHTE, NHDE"
    onnx = "TNGD, TNGD, TNHE, TNH, TNH, NHDE -> TNHE, NHDE"
    dynamic_axes = "NT"

    def check(self) -> None:
        groups, heads = self.input(0).shape[1], self.input(2).shape[1]
        if not groups or heads % groups:
            raise OperatorError(
                "heads of values must be a multiple of the heads of queries,"
                f" got {heads} and {groups} heads"
            )

    def emit(
        self,
        g: Builder,
        ys: tuple[View, ...],
        query: View,
        key: View,
        value: View,
        rate: View,
        log_decay: View,
        state: View,
    ) -> tuple[Value, ...]:
        (groups, depth), (heads, width) = query.shape[2:], value.shape[2:]
        shares = (1,) * (heads != groups)  # An axis for the heads that share queries and keys.
        lead = (groups, heads // groups) if shares else (heads,)
        row, column = (groups, *shares, 1, depth), (groups, *shares, depth, 1)
        values, number, matrix = (*lead, 1, width), (*lead, 1, 1), (*lead, depth, width)
        several = query.sizes[0] != 1
        zero = g.scalar(0, DType.FLOAT32)

        def split_heads(view: View, sizes: Shape) -> Value:
            """Return a sequence [tokens, batch, ...], or the row [batch, ...] of one token."""
            return view.reshape((*view.sizes[not several : 2], *sizes))

        rows = [
            (split_heads(query, row), (query.sizes[1], *row)),
            (split_heads(key, row), (key.sizes[1], *row)),
            (split_heads(key, column), (key.sizes[1], *column)),
            (split_heads(value, values), (value.sizes[1], *values)),
            (g.Max(split_heads(rate, number), zero), (rate.sizes[1], *number)),
            (
                g.Exp(g.Min(split_heads(log_decay, number), zero)),
                (log_decay.sizes[1], *number),
            ),
        ]
        before = state.reshape((state.sizes[0], *matrix)), (state.sizes[0], *matrix)

        def step(g: Builder, now: tuple[Value, ...], states: tuple[Value, ...]) -> list[Shaped]:
            after, output = _update_state(g, now, states[0])
            return [(after, before[1]), (output, (value.sizes[1], *values))]

        if several:
            after, output = scan(g, step, rows, [before], reverse=False)
        else:
            after, output = _update_state(g, [x for x, _ in rows], before[0])
        return (
            g.reshape(output, ys[0].sizes, like=query),
            g.reshape(after, ys[1].sizes, like=query),
        )


def _update_state(g: Builder, rows: Sequence[Value], state: Value) -> tuple[Value, Value]:
    """Return the state after a token, and the token's output."""
    query, key, column, value, rate, decay = rows
    kept = g.Mul(state, decay)
    change = g.Mul(g.Sub(value, g.MatMul(key, kept)), rate)
    after = g.Add(kept, g.Mul(column, change))
    return after, g.MatMul(query, after)


class TriangularInverse(Operator):
    """gdn_tril_inv: the inverses of I - A, for matrices A whose elements below the diagonal count.

    The other elements of A are added to the result, as the kernel does. The rows are computed one
    after the other, as in the kernel. Powers of A would be fewer nodes, but they may be as large as
    2 ** size although the inverse is small.
    """

    codes = ("gdn_tril_inv", "custom_call.gdn_tril_inv")
    operands = "float32 [... size size] -> float32 [... size size]"
    keeps_shape = True

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = x.shape[-1]
        matrices = (prod(x.shape[:-2]), size, size)
        flat, eye = x.reshape(matrices), np.eye(size, dtype=np.float32)
        below = np.tri(size, k=-1, dtype=np.float32)
        rows = g.Unsqueeze(g.Transpose(g.Mul(flat, below), perm=[1, 0, 2]), g.ints([2]))
        row, column = (matrices[0], 1, size), (size, 1)

        def step(g: Builder, now: tuple[Value, ...], states: tuple[Value, ...]) -> list[Shaped]:
            made = g.Add(now[0], g.MatMul(now[0], states[0]))
            return [(g.Add(states[0], g.Mul(now[1], made)), matrices)]

        xs = [(rows, row), (g.constant(eye[..., None]), column)]
        zeros = g.constant(np.zeros(matrices, np.float32))
        (inverse,) = scan(g, step, xs, [(zeros, matrices)], reverse=False)
        return g.reshape(g.Where(below > 0, inverse, g.Add(flat, eye)), y.sizes)
