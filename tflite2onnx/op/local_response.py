"""LOCAL_RESPONSE_NORMALIZATION: each channel divided by what its neighbours are."""

from __future__ import annotations

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.image import ImageOperator
from tflite2onnx.op.parameters import expect
from tflite2onnx.tensor import DType


class LocalResponseNormalization(ImageOperator):
    """x / (bias + alpha * s) ** beta, s the sum of squares of channels up to `radius` away."""

    codes = ("LOCAL_RESPONSE_NORMALIZATION",)
    any_size = "NHW"

    def check(self) -> None:
        self.sizes(0)
        expect(self.input(0), self.input(0).shape, DType.FLOAT32)
        expect(self.output, self.input(0).shape, DType.FLOAT32)
        if self.options.radius < 0:
            message = f"its radius is {self.options.radius}"
            raise OperatorError(message)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        o = self.options
        # All that are farther away than there are channels are nowhere.
        size = 2 * min(int(o.radius), x.size("C")) + 1
        # ONNX divides alpha by the size.
        return g.LRN(x, size=size, alpha=o.alpha * size, beta=float(o.beta), bias=float(o.bias))
