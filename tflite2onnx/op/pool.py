"""Pooling. Padding counts for nothing: no maximum comes from it, no average is over it."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.image import ImageOperator, expect_real, window_of
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import DType


class Pool2D(ImageOperator):
    """What all pooling has in common."""

    def check(self) -> None:
        x, options = self.sizes(0), self.options
        expect_real(self.input(0))
        steps = window_of(options, options.filter_height, options.filter_width).steps(
            (x["H"], x["W"])
        )
        expect(self.output, (x["N"], *steps, x["C"]), self.input(0).dtype)

    def window(self) -> dict[str, Sequence[int] | None]:
        """Return the window in ONNX's words."""
        x, options = self.sizes(0), self.options
        window = window_of(options, options.filter_height, options.filter_width)
        return window.attributes((x["H"], x["W"]))


class AveragePool2D(Pool2D):
    """AVERAGE_POOL_2D."""

    codes = ("AVERAGE_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.AveragePool(x, **self.window())


class MaxPool2D(Pool2D):
    """MAX_POOL_2D."""

    codes = ("MAX_POOL_2D",)

    def on_integers(self) -> bool:
        """Return true where MaxPool reads the integers, and no bound is put on the real numbers."""
        unbounded = self.options.fused_activation_function == "NONE"
        return unbounded and self.input(0).dtype in (DType.INT8, DType.UINT8)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.MaxPool(x, **self.window())


class L2Pool2D(Pool2D):
    """L2_POOL_2D: the root of the mean square, where ONNX's LpPool takes that of the sum."""

    codes = ("L2_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Sqrt(g.AveragePool(g.Mul(x, x), **self.window()))
