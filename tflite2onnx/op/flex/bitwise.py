"""TensorFlow's operators on the bits of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.elementwise.arithmetic import Elementwise, Row, node
from tflite2onnx.op.movement.bitcast import split_words
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import DType

_BITS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_UNSIGNED = (DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64)
_ONES = np.array([i.bit_count() for i in range(256)], np.int64)


def _shift_count(g: Builder, dtype: DType, by: Operand) -> Value:
    """Return the shift counts, uint64, clipped to the bits of the type as in TensorFlow."""
    least, most = (g.scalar(number, dtype) for number in (0, dtype.bits - 1))
    bounded = g.in_compute_type("Min", dtype, g.in_compute_type("Max", dtype, by, least), most)
    return g.cast(bounded, DType.UINT64)


def _shift_left(g: Builder, dtype: DType, _: Options, x: Operand, by: Operand) -> Value:
    # ONNX shifts unsigned integers only; the cast drops the bits above the type.
    wide, places = g.cast(x, DType.UINT64), _shift_count(g, dtype, by)
    return g.cast(g.BitShift(wide, places, direction="LEFT"), dtype)


def _shift_right(g: Builder, dtype: DType, _: Options, x: Operand, by: Operand) -> Value:
    places = _shift_count(g, dtype, by)
    if dtype in _UNSIGNED:
        return g.cast(g.BitShift(g.cast(x, DType.UINT64), places, direction="RIGHT"), dtype)
    # The complement of a negative number is shifted, and complemented again.
    wide = g.cast(x, DType.INT64)
    negative, mirror = g.Less(wide, g.scalar(0, DType.INT64)), g.scalar(-1, DType.INT64)
    bits = g.cast(g.Where(negative, g.Sub(mirror, wide), wide), DType.UINT64)
    shifted = g.cast(g.BitShift(bits, places, direction="RIGHT"), DType.INT64)
    return g.cast(g.Where(negative, g.Sub(mirror, shifted), shifted), dtype)


class FlexBits(Elementwise):
    """Bitwise operators and shifts of two integer tensors that broadcast."""

    quantization = Integers(in_file_types=True)
    arity = 2
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexBitwiseAnd": Row(node("BitwiseAnd"), _BITS, np.bitwise_and),
        "FlexBitwiseOr": Row(node("BitwiseOr"), _BITS, np.bitwise_or),
        "FlexBitwiseXor": Row(node("BitwiseXor"), _BITS, np.bitwise_xor),
        "FlexLeftShift": Row(_shift_left, _BITS),
        "FlexRightShift": Row(_shift_right, _BITS),
    }


class FlexInvert(Elementwise):
    """FlexInvert: the complement of each bit."""

    quantization = Integers(in_file_types=True)
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexInvert": Row(node("BitwiseNot"), _BITS, np.invert),
    }


class FlexPopulationCount(Elementwise):
    """FlexPopulationCount: the number of set bits."""

    quantization = Integers(in_file_types=True)
    makes = DType.UINT8
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexPopulationCount": Row(node("Identity"), _BITS),
    }

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        octets = g.cast(split_words(g, xs[0].value, xs[0].dtype, 8), DType.INT64)
        ones = g.Gather(g.constant(_ONES), octets)
        return g.cast(g.reduce("ReduceSum", ones, [xs[0].rank], keepdims=False), DType.UINT8)
