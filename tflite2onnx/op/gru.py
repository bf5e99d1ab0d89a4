"""GRU, an operator of ours: a loop of Keras, see `loops`."""

from __future__ import annotations

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator
from tflite2onnx.op.parameters import expect


class Gru(Operator):
    """GRU: a sequence [time, batch, features], W, R and b of all gates, and the first state."""

    codes = ("GRU",)
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
            "GRU", 2, x, *parameters, None, h.reshaped((1, *h.shape)),
            hidden_size=h.shape[-1], linear_before_reset=int(self.options.reset_after),
        )  # fmt: skip
        return g.reshape(made, y[0].shape), g.reshape(last, y[1].shape)
