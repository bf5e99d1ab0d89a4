"""HARD_SWISH: x * relu6(x + 3) / 6; of stored integers of 8 bits a table of what the kernel makes.

XNNPACK has no such kernel of integers, so that by default LiteRT's own computes: numbers of 16 bits
that it rounds four times. As real numbers up to 5 of 256 integers would be a step off, and the
table is as fast: ONNX Runtime has no integer kernel of HardSwish.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import AlreadyStored, Builder, Value, View
from tflite2onnx.op.common.fixed_point import are_narrow
from tflite2onnx.op.elementwise.arithmetic import Elementwise, ElementwiseRule, nodes
from tflite2onnx.op.indexing.hash_table import look_up
from tflite2onnx.quantize import encode_constant, integer_range
from tflite2onnx.tensor import Array, DType, Tensor

_BITS = 15  # behind the point
_FINER = 7  # bits that the kernel adds to an input
_KNEE = 3  # where HARD_SWISH becomes the identity


class HardSwish(Elementwise):
    """An activation function that stands alone, of stored integers a table."""

    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "HARD_SWISH": ElementwiseRule(nodes(lambda g, x: g.hard_swish(x)), "float32")
    }
    codes = tuple(rows)

    @cached_property
    def table(self) -> Array | None:
        """What the kernel makes of all integers, None if there is no table."""
        return _table(self.input(0), self.output)

    def emit(self, g: Builder, y: View, *xs: View) -> Value | AlreadyStored:  # type: ignore[override]
        if g.float_only or self.table is None:
            return super().emit(g, y, *xs)
        x = g.view(xs[0].tensor, xs[0].order)
        kept = g.storage(y.tensor)
        # Negative indices are counted from the end.
        table = np.roll(self.table, 128) if x.dtype is DType.INT8 else self.table
        elements = g.constant(encode_constant(table, y.tensor.dtype, kept), kept.dtype, "table")
        return AlreadyStored(look_up(g, elements, x))


class _Multiplier(NamedTuple):
    """A number of 16 bits, and how many bits its product is shifted to the left."""

    number: int
    shift: int


def _multiplier(factor: np.float32) -> _Multiplier:
    """Return a factor as QuantizeMultiplier and DownScaleInt32ToInt16Multiplier make it."""
    mantissa, shift = np.frexp(np.float64(factor))
    number = int(np.floor(mantissa * 2.0**31 + 0.5))
    return _Multiplier(min((number + (1 << 15)) >> 16, 2**15 - 1), int(shift))


def _table(x: Tensor, y: Tensor) -> Array | None:
    """Return the outputs for all inputs in rising order; HardSwish in LiteRT's hard_swish.h."""
    given, made = x.quantization, y.quantization
    if x.dtype is not y.dtype or not are_narrow(x, y) or given is None or made is None:
        return None
    fine = np.float32(2.0**-_FINER) * given.scale[0]
    scaled = _multiplier(fine / made.scale[0])
    gate = _multiplier(fine / np.float32(_KNEE / 2.0**_BITS))
    if not -_BITS <= scaled.shift <= 0 or not -_BITS <= gate.shift <= _BITS:
        return None  # which the kernel refuses, or which shifts all bits away
    low, high = integer_range(x.dtype)
    steps = (np.arange(low, high + 1) - given.zero_point[0]) << _FINER
    gates = (_open_gate(steps, gate) + (1 << _BITS)) >> 1
    product = gates * _product(steps, scaled.number)
    whole = np.sign(product) * (np.abs(product) >> _BITS)  # rounded towards 0
    shifted = _shift_right(whole, -scaled.shift) + made.zero_point[0]
    return np.asarray(np.clip(shifted, low, high), y.dtype.numpy)


def _open_gate(steps: Array, gate: _Multiplier) -> Array:
    """Return integers over the knee, from -1 to 1 in 16 bits."""
    before, last = max(gate.shift - 1, 0), int(gate.shift > 0)
    shifted = _saturate(_product(_saturate(steps << before), gate.number) << last)
    return _shift_right(shifted, max(-gate.shift, 0))


def _product(a: Array, b: int) -> Array:
    """Return a * b / 2^15, halves rounded up (SaturatingRoundingDoublingHighMul)."""
    return np.asarray((a * b + (1 << _BITS - 1)) >> _BITS)


def _saturate(numbers: Array) -> Array:
    return np.clip(numbers, -(1 << _BITS), (1 << _BITS) - 1)


def _shift_right(numbers: Array, bits: int) -> Array:
    """Return integers divided by a power of two, halves away from 0 (RoundingDivideByPOT)."""
    half = (1 << bits) >> 1
    return np.asarray(np.sign(numbers) * ((np.abs(numbers) + half) >> bits))
