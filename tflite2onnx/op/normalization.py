"""Normalizations along the last axis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.parameters import affordable
from tflite2onnx.quantize import is_quantized


class LastAxis(Operator):
    """One input and an output of its shape; what is computed is computed along the last axis."""

    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    types: ClassVar[str] = "float32"

    def check(self) -> None:
        x, y = self.input(0), self.output
        if x.rank == 0 or x.shape != y.shape:
            message = f"{list(x.shape)} cannot become {list(y.shape)}"
            raise OperatorError(message)
        for tensor in (x, y):
            if not is_quantized(tensor) and tensor.dtype.label not in self.types.split():
                message = f"{tensor.name} is {tensor.dtype.label}, which has no kernel"
                raise OperatorError(message)


class Softmax(LastAxis):
    """SOFTMAX: exp(beta * x), divided by its sum."""

    codes = ("SOFTMAX",)
    types = "float32 float16"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if is_quantized(x.tensor) and x.tensor.shape[-1] == 1:
            # ONNX Runtime's QLinearSoftmax has a table of 2**32 / axis steps, whose sum overflows
            # where there is but one: it makes 0 of what is 1.
            affordable(y.tensor.elements)
            return g.constant(np.ones(y.shape, np.float32))
        beta = self.options.beta
        scaled = x if beta == 1 else g.Mul(x, g.scalar(beta, x.dtype))
        return g.Softmax(scaled, axis=y.axis(-1))


class LogSoftmax(LastAxis):
    """LOG_SOFTMAX: x minus the logarithm of the sum of exp(x)."""

    codes = ("LOG_SOFTMAX",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.LogSoftmax(x, axis=y.axis(-1))


class L2Normalization(LastAxis):
    """L2_NORMALIZATION: x divided by its Euclidean norm, which counts as 1e-6 at least."""

    codes = ("L2_NORMALIZATION",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        norm = g.reduce("ReduceL2", x, [x.axis(-1)], keepdims=True)
        return g.Div(x, g.Max(norm, g.scalar(1e-6, x.dtype)))
