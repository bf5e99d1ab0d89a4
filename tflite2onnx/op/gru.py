"""GRU, an operator of ours (a loop of Keras, see `loops`), and a custom operator of LiteRT's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import Array, DType, Shape

_TIMES = 3  # axes of a sequence: time, batch, numbers


class Gru(Operator):
    """GRU: a sequence [time, batch, features], W, R and b of all gates, and the first state."""

    codes = ("GRU",)
    any_size = "..."
    category = Category.TERMINATE
    many_outputs = True

    def check(self) -> None:
        x, w, r, b, h = (self.input(i) for i in range(5))
        units = h.shape[-1]
        expect(w, (3 * units, x.shape[-1]), x.dtype)
        expect(r, (3 * units, units), x.dtype)
        expect(b, (6 * units,), x.dtype)
        expect(h, (x.shape[1], units), x.dtype)

    def emit(
        self, g: Builder, y: tuple[View, ...], x: View, w: View, r: View, b: View, h: View
    ) -> tuple[Value, ...]:
        parameters = [p.reshaped((1, *p.shape)) for p in (w, r, b)]
        made, last = g.many(
            "GRU", 2, x, *parameters, None, h.reshaped((1, *h.sizes)),
            hidden_size=h.shape[-1], linear_before_reset=int(self.options.reset_after),
        )  # fmt: skip
        return g.reshape(made, y[0].sizes), g.reshape(last, y[1].sizes)


class UnidirectionalSequenceGru(Operator):
    """UNIDIRECTIONAL_SEQUENCE_GRU: gated recurrent units, time first.

    The reset gate is applied before the matrix, as ONNX does by default. Weights are those of the
    input and the state, side by side; the gates are reset and update, where ONNX has the update
    gate, which it takes for the share of the old state as well, first.
    """

    codes = ("UNIDIRECTIONAL_SEQUENCE_GRU",)
    custom = True
    category = Category.TERMINATE
    many_outputs = True

    def shapes(self) -> Sequence[Shape]:
        times, batch, _ = self.input(0).shape
        state = self.input(1).shape
        return [(times, batch, state[-1]), state]

    def check(self) -> None:
        x, state = self.input(0), self.input(1)
        if x.rank != _TIMES or 0 in x.shape or len(self.op.outputs) != 2:
            message = f"an input of {list(x.shape)}, and {len(self.op.outputs)} outputs"
            raise OperatorError(message)
        (_, batch, inputs), units = x.shape, state.shape[-1]
        expect(x, x.shape, DType.FLOAT32)
        expect(state, (batch, units), DType.FLOAT32)
        expect(self.input(2), (2 * units, inputs + units), DType.FLOAT32)
        expect(self.input(3), (2 * units,), DType.FLOAT32)
        expect(self.input(4), (units, inputs + units), DType.FLOAT32)
        expect(self.input(5), (units,), DType.FLOAT32)
        for i in range(2, 6):
            if self.input(i).data is None:
                message = f"{self.input(i).name} is not constant"
                raise OperatorError(message)
        for tensor, shape in zip(self.op.outputs, self.shapes(), strict=True):
            expect(tensor, shape, DType.FLOAT32)

    def emit(
        self, g: Builder, ys: tuple[View, View], x: View, state: View, gates: View, biases: View,
        candidate: View, bias: View,
    ) -> tuple[Value, Value]:  # fmt: skip
        units, inputs = state.shape[-1], x.shape[-1]
        weights = _update_first(gates.constant, candidate.constant)
        added = np.concatenate([_update_first(biases.constant, bias.constant), np.zeros(3 * units)])
        named = ((weights[:, :inputs], "weights"), (weights[:, inputs:], "recurrent"))
        w, r = (g.constant(each[None], name=f"{gates.tensor.name}/{name}") for each, name in named)
        made, last = g.many(
            "GRU", 2, x, w, r, added[None].astype(np.float32), None,
            g.Unsqueeze(state, g.ints([0])), hidden_size=units,
        )  # fmt: skip
        return g.reshape(made, ys[0].shape), g.reshape(last, ys[1].shape)


def _update_first(gates: Array, candidate: Array) -> Array:
    """Return the parameters of the gates, reset and update, and of the candidate as ONNX's."""
    reset, update = np.split(gates, 2)
    return np.concatenate([update, reset, candidate])
