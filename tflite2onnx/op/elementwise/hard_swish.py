"""HARD_SWISH: x * relu6(x + 3) / 6, and for 8-bit stored integers a table of the kernel's results.

XNNPACK has no integer kernel of HARD_SWISH, so LiteRT's built-in kernel runs by default. It
computes with 16-bit numbers that are rounded four times. A float computation would differ by 1 for
up to 5 of 256 integers. The table is not slower, because runtimes have no integer kernel
for HardSwish.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.common.fixed_point import are_narrow
from tflite2onnx.op.elementwise.arithmetic import Elementwise, Row, as_emit
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.indexing.integer_table import look_up
from tflite2onnx.quantization.declarations import Real
from tflite2onnx.quantization.storage import encode_constant, find_integer_range
from tflite2onnx.tensor import Array, DType, Tensor

_BITS = 15  # fraction bits of the kernel's numbers
_INPUT_BITS = 7  # fraction bits that the kernel adds to an input
_KNEE = 3  # HARD_SWISH is the identity for larger inputs


class HardSwish(Elementwise):
    """HARD_SWISH: x * relu6(x + 3) / 6; stored integers are looked up in a table."""

    rows: ClassVar[Mapping[str, Row]] = {
        "HARD_SWISH": Row(as_emit(lambda g, x: g.hard_swish(x)), "float32")
    }
    facts = (Fact.ACTIVATION,)

    @cached_property
    def table(self) -> Array | None:
        """The kernel's result for each integer, None if there is no integer kernel."""
        return _make_table(self.input(0), self.output)

    @property
    def quantization(self) -> Real:
        return Real(tabulates=self.table is not None)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        (x,) = xs
        if self.table is None or x.storage.quantization is None:
            return super().emit(g, y, x)
        # A negative index counts from the end of the table.
        table = np.roll(self.table, 128) if x.dtype is DType.INT8 else self.table
        elements = encode_constant(table, y.tensor.dtype, y.storage)
        return look_up(g, g.constant(elements, y.dtype, "table"), x)


class _Multiplier(NamedTuple):
    """A 16-bit factor, and the number of bits by which the product is shifted left."""

    number: int
    shift: int


def _encode_multiplier(factor: np.float32) -> _Multiplier:
    """Return a factor as QuantizeMultiplier and DownScaleInt32ToInt16Multiplier encode it."""
    mantissa, shift = np.frexp(np.float64(factor))
    number = int(np.floor(mantissa * 2.0**31 + 0.5))
    return _Multiplier(min((number + (1 << 15)) >> 16, 2**15 - 1), int(shift))


def _make_table(x: Tensor, y: Tensor) -> Array | None:
    """Return the outputs of all inputs in ascending order, as in LiteRT's hard_swish.h."""
    source, target = x.quantization, y.quantization
    if x.dtype is not y.dtype or not are_narrow(x, y) or source is None or target is None:
        return None
    if not target.scale[0]:
        return None  # the kernel divides by the scale
    fine = np.float32(2.0**-_INPUT_BITS) * source.scale[0]
    scaled = _encode_multiplier(fine / target.scale[0])
    gate = _encode_multiplier(fine / np.float32(_KNEE / 2.0**_BITS))
    if not -_BITS <= scaled.shift <= 0 or not -_BITS <= gate.shift <= _BITS:
        return None  # the kernel rejects the scales, or shifts out all bits
    low, high = find_integer_range(x.dtype)
    steps = (np.arange(low, high + 1) - source.zero_point[0]) << _INPUT_BITS
    gates = (_compute_gate(steps, gate) + (1 << _BITS)) >> 1
    product = gates * _multiply_rounded(steps, scaled.number)
    whole = np.sign(product) * (np.abs(product) >> _BITS)  # rounds towards 0
    shifted = _shift_right(whole, -scaled.shift) + target.zero_point[0]
    return np.asarray(np.clip(shifted, low, high), y.dtype.numpy)


def _compute_gate(steps: Array, gate: _Multiplier) -> Array:
    """Return integers divided by the knee, saturated to [-1, 1), in 16 bits."""
    before, last = max(gate.shift - 1, 0), int(gate.shift > 0)
    shifted = _saturate_int16(
        _multiply_rounded(_saturate_int16(steps << before), gate.number) << last
    )
    return _shift_right(shifted, max(-gate.shift, 0))


def _multiply_rounded(a: Array, b: int) -> Array:
    """Return a * b / 2^15, rounded half up (SaturatingRoundingDoublingHighMul)."""
    return np.asarray((a * b + (1 << _BITS - 1)) >> _BITS)


def _saturate_int16(numbers: Array) -> Array:
    return np.clip(numbers, -(1 << _BITS), (1 << _BITS) - 1)


def _shift_right(numbers: Array, bits: int) -> Array:
    """Return integers / 2^bits, rounded half away from 0 (RoundingDivideByPOT)."""
    half = (1 << bits) >> 1
    return np.asarray(np.sign(numbers) * ((np.abs(numbers) + half) >> bits))
