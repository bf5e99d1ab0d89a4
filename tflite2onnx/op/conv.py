"""Convolutions."""

from __future__ import annotations

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError


def window_pads(op: Operator, sizes: list[int], kernel: list[int], strides: list[int], dilations: list[int]) -> list[int]:
    if op.options.padding != "SAME":
        return [0] * (2 * len(sizes))
    begins, ends = [], []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
        begins.append(total // 2)
        ends.append(total - total // 2)
    return begins + ends


class Conv2D(Operator):
    codes = ("CONV_2D",)
    weights = frozenset({1, 2})
    category = Category.IMPLICIT
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, OIHW, O -> NCHW"

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        o = self.options
        strides, dilations = [o.stride_h, o.stride_w], [o.dilation_h_factor, o.dilation_w_factor]
        kernel = [w.size("H"), w.size("W")]
        return g.Conv(x, w, b, group=x.size("C") // w.size("I"), kernel_shape=kernel, strides=strides, dilations=dilations,
            pads=window_pads(self, [x.size("H"), x.size("W")], kernel, strides, dilations))
