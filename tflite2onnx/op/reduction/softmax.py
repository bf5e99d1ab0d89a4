"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION: normalizations along the last axis."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect_type
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import DType

_MOST_ONES = 1 << 16  # elements of a constant: a tiny file may declare any number
_LARGEST_FACTOR = 1e19  # products of larger ones and usual numbers overflow


class LastAxis(AnySizes):
    """Base of the operators: input and output have one shape; sums are along the last axis."""

    operands = "float32|quantized [... n] -> float32|quantized [... n]"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return (-1,)

    def check(self) -> None:
        x, y = self.input(0), self.output
        if x.dtype is not y.dtype and not (is_quantized(x) and is_quantized(y)):
            raise OperatorError(
                f"{y.name} must be {x.dtype.label} as its input, got {y.dtype.label}"
            )


class Exponential(LastAxis):
    """Base of SOFTMAX and LOG_SOFTMAX."""

    operands = "float32|quantized+float64 [... n] -> float32|quantized+float64 [... n]"


class Softmax(Exponential):
    """SOFTMAX: exp(beta * x), divided by its sum.

    LiteRT's int16 kernel loses masks of -1e9 and less (Keras's attention, converted to int16x8):
    their scale is above 10, and the kernel's difference from the maximum, scaled to units of
    10 / 65535, wraps around in 32 bits (`SoftmaxInt16`). Some masked elements then count as the
    maximum. The converted model keeps the mask.
    """

    codes = ("SOFTMAX",)
    operands = (
        "float32|float16|quantized+float64 [... n] -> float32|float16|quantized+float64 [... n]"
    )
    # The kernel interpolates exponentials between the entries of a table.
    steps: ClassVar[Mapping[str, int]] = {"SOFTMAX int16": 30}

    def check(self) -> None:
        super().check()
        if is_quantized(self.output) and not np.isfinite(self.options.beta):
            raise OperatorError(f"beta must be finite for integers, got {self.options.beta:g}")
        if self.input(0).dtype is not DType.INT16:
            return
        expect_type(self.output, (DType.INT16,))  # the kernel writes 16 bits for any output type
        if self.options.beta < 0:  # the kernel supports positive factors only
            raise OperatorError(f"beta must not be negative for int16, got {self.options.beta:g}")

    @property
    def quantization(self) -> Real:
        target = self.output.quantization
        if target is None or self.output.dtype is not DType.UINT8:
            return Real()
        # QuantizeSoftmaxOutput<uint8_t> of optimized_ops.h adds no zero point.
        zero_point = np.zeros_like(target.zero_point)
        return Real(kernel_writes=replace(target, zero_point=zero_point))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        beta, overflows = self.options.beta, self._overflows()
        is_one = y.tensor.shape[-1] == 1 and not y.tensor.symbols
        if overflows and is_one and y.tensor.elements <= _MOST_ONES:
            return g.constant(np.ones(y.shape, np.float32))
        shifted: Value | View = x
        if beta > _LARGEST_FACTOR:  # the kernel multiplies differences from the maximum
            shifted = g.Sub(x, g.reduce("ReduceMax", x, [y.axis(-1)], keepdims=True))
        scaled = x if beta == 1 else g.Mul(shifted, g.scalar(beta, x.dtype))
        if overflows:
            return g.Exp(g.LogSoftmax(scaled, axis=y.axis(-1)))
        return g.Softmax(self.limit_scores(g, scaled, y.axis(-1)), axis=y.axis(-1))

    def limit_scores(self, g: Builder, x: Value | View, axis: int) -> Value | View:
        """Return what the exponentials are of; a target may limit it as the kernel does."""
        return x

    def _overflows(self) -> bool:
        """Return whether QLinearSoftmax overflows, to which runtimes fuse the nodes.

        With an overflow a result of 1 becomes 0. The entries of the kernel's table of exponentials
        are up to e**-5 * the largest float32 / the size of the axis. Each entry is divided by the
        output scale. A dynamic size may be 1.
        """
        y = self.output
        target, size = y.quantization, 1 if y.rank - 1 in y.symbols else max(y.shape[-1], 1)
        # QLinearSoftmax does not support int16.
        if target is None or self.output.dtype is DType.INT16:
            return False
        return bool(np.exp(-5) / target.scale[0] > size)


class LogSoftmax(Exponential):
    """LOG_SOFTMAX: x minus the logarithm of the sum of exp(x)."""

    codes = ("LOG_SOFTMAX",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.LogSoftmax(x, axis=y.axis(-1))


class L2Normalization(LastAxis):
    """L2_NORMALIZATION: x divided by its Euclidean norm, or by 1e-6 if the norm is smaller."""

    codes = ("L2_NORMALIZATION",)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        norm = g.reduce("ReduceL2", x, [x.axis(-1)], keepdims=True)
        return g.Div(x, g.Max(norm, g.scalar(1e-6, x.dtype)))
