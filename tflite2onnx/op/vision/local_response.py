"""LOCAL_RESPONSE_NORMALIZATION: divide each channel by a norm of its neighbours."""

from __future__ import annotations

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.tensor import DType


class LocalResponseNormalization(ImageOperator):
    """x / (bias + alpha * s) ** beta; s sums the squares of channels up to `radius` away."""

    codes = ("LOCAL_RESPONSE_NORMALIZATION",)
    dynamic_axes = "NHW"
    keeps_shape = True
    operands = "float32 -> float32"

    def check(self) -> None:
        self.sizes(0)
        o = self.options
        if o.radius < 0:
            raise OperatorError(f"radius must not be negative, got {o.radius}")
        if min(o.alpha, o.beta) < 0:  # ONNX Runtime does not load an LRN node with these
            raise OperatorError(
                f"alpha and beta must not be negative, got {o.alpha:g} and {o.beta:g}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        o = self.options
        if min(o.alpha, o.beta) == 0:  # ONNX Runtime rejects 0 too; the divisor is constant
            factor = np.float32(o.bias) ** -np.float32(o.beta)
            return g.Mul(x, g.scalar(float(factor), DType.FLOAT32))
        # A larger radius reaches no further channels.
        size = 2 * min(int(o.radius), x.size("C")) + 1
        # ONNX divides alpha by the size.
        return g.LRN(x, size=size, alpha=o.alpha * size, beta=float(o.beta), bias=float(o.bias))
