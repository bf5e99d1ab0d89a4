"""Pooling. Padding counts for nothing: no maximum comes from it, no average is over it."""

from __future__ import annotations

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.image import ImageOperator, Window, expect_real, image_of, window_of
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import DType


class Pool2D(ImageOperator):
    """What all pooling has in common."""

    def window(self) -> Window:
        """Return the window, whose size is an option."""
        return window_of(self.options, self.options.filter_height, self.options.filter_width)

    def check(self) -> None:
        x = self.sizes(0)
        expect_real(self.input(0))
        made = (x["N"], *self.window().steps((x["H"], x["W"])), x["C"])
        expect(self.output, made, self.input(0).dtype)


class AveragePool2D(Pool2D):
    """AVERAGE_POOL_2D."""

    codes = ("AVERAGE_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.AveragePool(x, **self.window().attributes(image_of(x)))


class MaxPool2D(Pool2D):
    """MAX_POOL_2D."""

    codes = ("MAX_POOL_2D",)

    def on_integers(self) -> bool:
        """Return true where MaxPool reads the integers, and no bound is put on the real numbers."""
        unbounded = self.options.fused_activation_function == "NONE"
        return unbounded and self.input(0).dtype in (DType.INT8, DType.UINT8)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.MaxPool(x, **self.window().attributes(image_of(x)))


class L2Pool2D(Pool2D):
    """L2_POOL_2D: the root of the mean square, where ONNX's LpPool takes that of the sum."""

    codes = ("L2_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Sqrt(g.AveragePool(g.Mul(x, x), **self.window().attributes(image_of(x))))
