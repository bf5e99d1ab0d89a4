"""Pooling. Padding counts for nothing: no maximum comes from it, no average is over it."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.common.checks import expect, expect_real
from tflite2onnx.op.common.windows import ImageOperator, Window, open_image_of, window_of
from tflite2onnx.quantize import half_away_scale
from tflite2onnx.tensor import DType, Quantization, Shape


class Pool2D(ImageOperator):
    """What all pooling has in common."""

    dynamic_axes = "NHW"

    def window(self) -> Window:
        """Return the window, whose size is an option."""
        return window_of(self.options, self.options.filter_height, self.options.filter_width)

    def check(self) -> None:
        x = self.sizes(0)
        expect_real(self.input(0))
        made = (x["N"], *self.window().steps((x["H"], x["W"])), x["C"])
        expect(self.output, made, self.input(0).dtype)


def average(g: Builder, x: View, window: Mapping[str, Any]) -> Value:
    """Return the averages over a window; those of 16-bit integers rounded as the kernels do."""
    if x.dtype is not DType.INT16:
        return g.AveragePool(x, **window)
    mean = g.AveragePool(g.cast(x, DType.FLOAT32), **window)
    half = g.scalar(0.5, DType.FLOAT32)
    away = g.Mul(g.Sign(mean), g.Floor(g.Add(g.Abs(mean), half)))
    return g.cast(away, DType.INT16)


def average_quantization(dtype: DType, kernel: Shape) -> Quantization:
    """Return the scale in which averages over a window are written.

    Averages of n bytes are 1 / n apart, and the largest is raised by a quarter of that. It has to
    be as much: QLinearAveragePool adds the zero point before it rounds, and behind 128, where int8
    kept as uint8 has it, a float32 tells no less than 2^-16 apart. From 128 bytes on that is too
    much for a half, later for one and a half: these are a step off.
    """
    largest = 128 if dtype is DType.INT8 else 256
    return half_away_scale(1 / (4 * largest * prod(kernel)))


class AveragePool2D(Pool2D):
    """AVERAGE_POOL_2D: the mean of what a window shows.

    Of 16 bits no runtime has a kernel, so that the integers are rounded by nodes.
    """

    codes = ("AVERAGE_POOL_2D",)

    def reads_stored_integers(self) -> bool:
        return self.input(0).dtype is DType.INT16

    @property
    def rounding_quantization(self) -> Quantization:
        return average_quantization(self.input(0).dtype, self.window().kernel)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return average(g, x, self.window().open_attributes(open_image_of(x)))


class MaxPool2D(Pool2D):
    """MAX_POOL_2D: the largest of what a window shows."""

    codes = ("MAX_POOL_2D",)
    moves_only = True

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.in_compute_type(
            "MaxPool", x.dtype, x, **self.window().open_attributes(open_image_of(x))
        )


class L2Pool2D(Pool2D):
    """L2_POOL_2D: the root of the mean square, where ONNX's LpPool takes that of the sum."""

    codes = ("L2_POOL_2D",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Sqrt(g.AveragePool(g.Mul(x, x), **self.window().open_attributes(open_image_of(x))))
