"""LiteRT's custom operators for gated delta networks, the linear attention of Qwen 3.5.

The formulas are in litert/experimental/custom_ops/gated_delta_net of LiteRT.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, Value, View
from tflite2onnx.op.recurrent.base import Shaped, scan
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType


class GatedDeltaUpdate(DynamicShape):
    """gated_delta_update: tokens update the state S of each head, one after the other.

    A token has a query q, a key k, a value v, a rate b and the logarithm g of a decay:

        S = exp(g) S,  S = S + k (b (v - k S)),  output = q S

    with rows q, k and v, and a state [depth, width]. Neighbouring heads of the values may share a
    head of the queries and keys. A token with g > 0 or b < 0 is padding: LiteRT takes 0 in place of
    these numbers. (Versions of LiteRT before this rule use the numbers as they are.)

    Several tokens take a Scan, which computes token by token as LiteRT's kernel does. Forms that
    compute blocks of tokens at once need differences of sums of g, which are less exact.
    """

    codes = ("gated_delta_update",)
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
        sequences = (query, row), (key, row), (key, column), (value, values)
        parts = (*sequences, (rate, number), (log_decay, number))
        several = query.sizes[0] != 1
        rows = [view.reshape((*view.sizes[not several : 2], *sizes)) for view, sizes in parts]
        zero = g.scalar(0, DType.FLOAT32)
        rows[-2:] = g.Max(rows[-2], zero), g.Exp(g.Min(rows[-1], zero))
        before = state.reshape((state.sizes[0], *matrix)), (state.sizes[0], *matrix)

        def step(g: Builder, now: tuple[Value, ...], states: tuple[Value, ...]) -> list[Shaped]:
            after, output = _update_state(g, now, states[0])
            return [(after, before[1]), (output, (value.sizes[1], *values))]

        if several:
            shapes = [(view.sizes[1], *sizes) for view, sizes in parts]
            xs = list(zip(rows, shapes, strict=True))
            after, output = scan(g, step, xs, [before], reverse=False)
        else:
            after, output = _update_state(g, rows, before[0])
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

    codes = ("gdn_tril_inv",)
    operands = "float32 [... size size] -> float32 [... size size]"
    keeps_shape = True

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = x.shape[-1]
        matrices = (prod(x.shape[:-2]), size, size)
        flat, eye = x.reshape(matrices), np.eye(size, dtype=np.float32)
        below = np.tri(size, k=-1, dtype=np.float32)
        rows = g.Unsqueeze(g.Transpose(g.Mul(flat, below), perm=[1, 0, 2]), [2])
        row, column = (matrices[0], 1, size), (size, 1)

        def step(g: Builder, now: tuple[Value, ...], states: tuple[Value, ...]) -> list[Shaped]:
            made = g.Add(now[0], g.MatMul(now[0], states[0]))
            return [(g.Add(states[0], g.Mul(now[1], made)), matrices)]

        xs = [(rows, row), (g.constant(eye[..., None]), column)]
        zeros = g.constant(np.zeros(matrices, np.float32))
        (inverse,) = scan(g, step, xs, [(zeros, matrices)], reverse=False)
        return g.reshape(g.Where(below > 0, inverse, g.Add(flat, eye)), y.sizes)
