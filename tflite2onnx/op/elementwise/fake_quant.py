"""QUANTIZE and FAKE_QUANT: real numbers to stored integers, and back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.made_options import QuantizeOptions
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect_input_count, expect_symmetric
from tflite2onnx.op.common.fixed_point import Slopes, are_narrow, compute_reciprocal, compute_slopes
from tflite2onnx.op.traits import Pointwise
from tflite2onnx.quantization.declarations import Declaration, Integers, Real, has_one_scale
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import (
    AS_NUMBERS,
    Storage,
    find_integer_range,
    is_quantized,
    move_zero_point,
    same_quantization,
)
from tflite2onnx.tensor import DType, Quantization, Tensor

_BITS = range(2, 17)


class Quantize(Pointwise):
    """QUANTIZE: real numbers, or integers of another scale, become integers with a scale.

    XNNPACK multiplies real numbers by the reciprocal of the scale, and ONNX divides them by the
    scale. The results differ for ties, which are frequent in pixels from -1 to 1. To requantize to
    another integer type, LiteRT's built-in kernel rounds half away from zero, and ONNX rounds half
    to even. XNNPACK requantizes to another scale of the same type with halves rounded up. This
    becomes LeakyRelu, whose two slopes round halves up, and which runtimes compute by a table.
    Integers that stand for the same real numbers as int8 and as uint8 are converted only where the
    ONNX model stores them in two types. With `QuantizeOptions.divides` real numbers are divided by
    the scale: QuantizeLinear alone.

    Only QUANTIZE reads int32 with a scale, and writes it, from int16. Other operators do not treat
    int32 with a scale as quantized.
    """

    codes = ("QUANTIZE",)
    steps: ClassVar[Mapping[str, int]] = {"QUANTIZE int32": 1}  # see ties above
    precision: ClassVar[DType] = DType.FLOAT64  # of int32: float32 cannot represent 31 bits

    def check(self) -> None:
        expect_input_count(self, 1)
        source, target = self.input(0), self.output
        wide = [tensor for tensor in (source, target) if _find_int32_quantization(tensor)]
        is_known = source.dtype is DType.FLOAT32 or is_quantized(source) or source in wide
        if not is_known or not (is_quantized(target) or (wide and source.dtype is DType.INT16)):
            raise OperatorError(
                f"it must convert float32 or quantized integers to quantized integers, "
                f"got {source.dtype.label} to {target.dtype.label}"
            )
        if is_quantized(source) and source.per_axis:
            raise OperatorError(f"{source.name} must have one scale")
        for tensor in wide:
            expect_symmetric(tensor)

    @property
    def slopes(self) -> Slopes | None:
        """The factors of the integer kernel, None if there are none."""
        return None if has_one_scale(self.op) else compute_slopes(self.input(0), self.output)

    @property
    def reciprocal(self) -> np.float32 | None:
        """The factor of the kernel for real numbers, None if the kernel divides."""
        divides = self.op.read_made(QuantizeOptions).divides
        is_float32 = self.input(0).dtype is DType.FLOAT32
        return compute_reciprocal(self.output) if is_float32 and not divides else None

    @property
    def keeps_numbers(self) -> bool:
        """Whether each integer of the input is an integer of the output, int8 or uint8."""
        x, y = self.input(0), self.output
        if not are_narrow(x, y):
            return False
        storage = move_zero_point(Storage(x.dtype, x.quantization), y.dtype)
        return same_quantization(storage.quantization, y.quantization)

    @property
    def quantization(self) -> Declaration:
        if self.keeps_numbers:
            return Integers(keeps_scales=True)
        if _find_int32_quantization(self.output) is not None:
            return Integers()
        target, reads = self.output.quantization, self.slopes and self.slopes.scale
        if target is None or self.reciprocal is None:
            return Real(reads=(reads,), takes_axes=True)
        written = replace(AS_NUMBERS, zero_point=target.zero_point)
        return Real((reads,), writes=written, takes_axes=True)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if self.keeps_numbers:
            return g.convert(x.value, x.storage, y.storage, x.order)
        if _find_int32_quantization(y.tensor):
            return self._quantize_to_int32(g, y, x)
        scale = _find_int32_quantization(x.tensor)
        if scale:
            return g.dequantize(x, Storage(DType.INT32, scale), x.order)
        if y.plan.reading is not Reading.DEQUANTIZED:
            return x.value
        if self.reciprocal is not None:
            return g.Mul(x, np.asarray(self.reciprocal))
        return g.LeakyRelu(x, alpha=self.slopes.alpha) if self.slopes else x.value

    def _quantize_to_int32(self, g: Builder, y: View, x: View) -> Value:
        """Return stored integers or real numbers as int32 with a scale.

        QuantizeLinear has no int32 output.
        """
        scale = np.float64(y.tensor.quantization.scale[0] if y.tensor.quantization else 1)
        source_scale = np.float64(x.storage.quantization.scale[0] if x.storage.quantization else 1)
        units, dtype = g.cast(x, self.precision), self.precision
        if x.storage.zero_point:
            units = g.Sub(units, g.scalar(x.storage.zero_point, dtype))
        steps = g.Mul(units, g.scalar(source_scale / scale, dtype))
        least, most = find_integer_range(DType.INT32)
        if dtype is DType.FLOAT32:  # the largest number below 2 ** 31
            most -= 2**7 - 1
        bounds = (g.scalar(bound, dtype) for bound in (least, most))
        return g.cast(g.Clip(g.Round(steps), *bounds), DType.INT32)


def _find_int32_quantization(tensor: Tensor) -> Quantization | None:
    return tensor.quantization if tensor.dtype is DType.INT32 and tensor.data is None else None


class FakeQuant(Pointwise):
    """FAKE_QUANT: quantizes real numbers to `num_bits` bits from `min` to `max`, and dequantizes.

    The range is shifted so that 0 is representable, as NudgeQuantizationRange and FakeQuantizeArray
    of LiteRT's quantization_util.cc do, in float32.
    """

    codes = ("FAKE_QUANT",)
    operands = "float32 -> float32"

    def check(self) -> None:
        options = self.options
        if options.narrow_range:
            raise OperatorError("narrow_range must be false, because LiteRT's kernel rejects it")
        if options.num_bits not in _BITS or not options.min <= 0 <= options.max > options.min:
            raise OperatorError(
                f"num_bits must be between 2 and 16, and the range must include 0, "
                f"got {options.num_bits} bits from {options.min} to {options.max}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        lower, upper = np.float32(self.options.min), np.float32(self.options.max)
        last = np.float32(2**self.options.num_bits - 1)
        scale = (upper - lower) / last
        zero_point = np.float32(np.floor(float(np.clip(-lower / scale, 0, last)) + 0.5))
        low, high = (np.asarray((bound - zero_point) * scale) for bound in (np.float32(0), last))
        steps = g.Mul(g.Sub(g.Clip(x, low, high), low), np.asarray(1 / scale))
        # The kernel rounds halves up, and Round does not. In Floor(steps + 0.5) the sum may be
        # rounded, too.
        whole = g.Sub(g.Floor(g.Add(steps, steps)), g.Floor(steps))
        return g.Add(g.Mul(whole, np.asarray(scale)), low)
