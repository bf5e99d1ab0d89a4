"""Convolution2DTransposeBias: MediaPipe's transposed convolution without a given size."""

from __future__ import annotations

from collections.abc import Sequence

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.c_struct_options import padding_of, read_int32_fields
from tflite2onnx.op.vision.conv import Convolution


class Convolution2DTransposeBias(Convolution):
    """Convolution2DTransposeBias: a transposed convolution with biases.

    With padding SAME the kernel crops k - (n - 1) % stride - 1 rows, for n rows of the input. This
    differs from the padding of the convolution that maps the output to the input.
    """

    codes = ("Convolution2DTransposeBias",)
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, IOHW, O -> NCHW"
    operands = "float32, float32, float32 -> float32"

    def _read_strides_and_crop(self) -> tuple[list[int], list[int]]:
        """Return the strides, and the number of rows and columns to crop."""
        padding, stride_w, stride_h = read_int32_fields(self, 3)
        strides, name = [stride_h, stride_w], padding_of(padding)
        if min(strides) < 1 or name == "UNKNOWN":
            raise OperatorError(
                f"its strides must be positive and its padding SAME or VALID, got {strides} and "
                f"{name}"
            )
        x, w = self.sizes(0), self.sizes(1)
        same = name == "SAME"
        crop = [
            max(0, w[axis] - (x[axis] - 1) % stride - 1) if same else 0
            for axis, stride in zip("HW", strides, strict=True)
        ]
        return strides, crop

    def infer_outputs(self) -> Sequence[OutputShape]:
        (strides, crop), x, w = self._read_strides_and_crop(), self.sizes(0), self.sizes(1)
        image = (
            stride * (x[axis] - 1) + w[axis] - cut
            for axis, stride, cut in zip("HW", strides, crop, strict=True)
        )
        return [(x["N"], *image, w["O"])]

    def check(self) -> None:
        self.check_operands()
        x, w = self.sizes(0), self.sizes(1)
        if x["C"] != w["I"]:
            raise OperatorError(
                f"its input must have the {w['I']} channels of its filters, got {x['C']}"
            )

    def emit(self, g: Builder, y: View, x: View, w: View, b: View) -> Value:
        strides, crop = self._read_strides_and_crop()
        pads = [n // 2 for n in crop] + [n - n // 2 for n in crop]
        kernel = [w.size("H"), w.size("W")]
        return g.ConvTranspose(x, w, b, kernel_shape=kernel, strides=strides, pads=pads)
