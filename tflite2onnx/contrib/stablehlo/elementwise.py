"""Elementwise operators from StableHLO, ATAN2 and RIGHT_SHIFT."""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tflite2onnx.operators import (
    Builder,
    DType,
    Elementwise,
    Emit,
    Operand,
    OperatorError,
    Options,
    Row,
    Value,
    emit_node,
    is_quantized,
)

_NUMBERS = "float32 float16 float64 int8 uint8 int16 uint16 int32 uint32 int64 uint64"
_BITS = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64"

# Operators whose kernels do not broadcast. TensorFlow's Atan2, which has the option `broadcasts`,
# broadcasts.
_OF_ONE_SHAPE = ("ATAN2", "STABLEHLO_SHIFT_LEFT")


def _choose_by_dtype(logical: str, other: str) -> Emit:
    """Return a function that emits one node for bools and another node for numbers."""

    def emit(g: Builder, dtype: DType, options: Options, *xs: Operand) -> Value:
        return emit_node(logical if dtype is DType.BOOL else other)(g, dtype, options, *xs)

    return emit


def _shift_left(g: Builder, dtype: DType, _: Options, x: Operand, by: Operand) -> Value:
    # ONNX shifts unsigned integers only. The final Cast drops the high bits, as the kernel does.
    numbers = (g.cast(operand, DType.UINT64) for operand in (x, by))
    return g.cast(g.BitShift(*numbers, direction="LEFT"), dtype)


def _shift_right(g: Builder, dtype: DType, _: Options, x: Operand, by: Operand) -> Value:
    """Divide by a power of two and round down, which is exact in float64 for 32-bit integers."""
    places = g.Max(g.cast(by, DType.FLOAT64), g.scalar(0, DType.FLOAT64))
    places = g.Min(places, g.scalar(dtype.bits - 1, DType.FLOAT64))
    power = g.Pow(g.scalar(2, DType.FLOAT64), places)
    return g.cast(g.Floor(g.Div(g.cast(x, DType.FLOAT64), power)), dtype)


def _compute_atan2(g: Builder, dtype: DType, _: Options, y: Operand, x: Operand) -> Value:
    """Return the angle of (x, y), computed in the first octant and mirrored to the others."""
    y, x = (
        operand if dtype is DType.FLOAT32 else g.cast(operand, DType.FLOAT32) for operand in (y, x)
    )
    high, width = g.Abs(y), g.Abs(x)
    # The ratio of two zeros becomes 0, and the ratio of two infinities becomes 1.
    ends = g.Where(g.Equal(width, g.scalar(0, DType.FLOAT32)), width, g.scalar(1, DType.FLOAT32))
    ratio = g.Where(g.Equal(high, width), ends, g.Div(g.Min(high, width), g.Max(high, width)))
    angle = g.Atan(ratio)
    angle = g.Where(g.Greater(high, width), _subtract_from(g, math.pi / 2, angle), angle)
    angle = g.Where(_has_sign(g, x), _subtract_from(g, math.pi, angle), angle)
    angle = g.Where(_has_sign(g, y), g.Neg(angle), angle)
    return angle if dtype is DType.FLOAT32 else g.cast(angle, dtype)


def _subtract_from(g: Builder, whole: float, angle: Value) -> Value:
    return g.Sub(g.scalar(whole, DType.FLOAT32), angle)


def _has_sign(g: Builder, x: Operand) -> Value:
    """Return whether the sign bit of x is set, also for -0."""
    zero = g.scalar(0, DType.FLOAT32)
    return g.Less(g.Where(g.Equal(x, zero), g.Reciprocal(x), x), zero)


class Bits(Elementwise):
    """Functions of two inputs, which must not be quantized."""

    arity = 2
    rows: ClassVar[Mapping[str, Row]] = {
        "ATAN2": Row(_compute_atan2, "float32 float16 bfloat16"),
        "RIGHT_SHIFT": Row(_shift_right, "int8 uint8 int16 uint16 int32 uint32"),
        "STABLEHLO_ADD": Row(_choose_by_dtype("Or", "Add"), f"bool {_NUMBERS}", np.add),
        "STABLEHLO_AND": Row(_choose_by_dtype("And", "BitwiseAnd"), _BITS, np.bitwise_and),
        "STABLEHLO_MAXIMUM": Row(_choose_by_dtype("Or", "Max"), f"bool {_NUMBERS}", np.maximum),
        "STABLEHLO_MINIMUM": Row(_choose_by_dtype("And", "Min"), f"bool {_NUMBERS}", np.minimum),
        "STABLEHLO_MULTIPLY": Row(_choose_by_dtype("And", "Mul"), f"bool {_NUMBERS}", np.multiply),
        "STABLEHLO_SHIFT_LEFT": Row(_shift_left, "int8 int16 int32"),
    }

    def check(self) -> None:
        super().check()
        for tensor in (*self.op.inputs, self.output):
            if tensor is not None and is_quantized(tensor):
                raise OperatorError(f"{tensor.name} must not be quantized")
        made = self.op.made
        left, other = (self.input(i).shape for i in range(2))
        broadcasts = self.op.code not in _OF_ONE_SHAPE or (made and made.of_tensorflow)
        if left != other and not broadcasts:
            raise OperatorError(
                f"its inputs must have one shape, got {list(left)} and {list(other)}:"
                " the kernel does not broadcast"
            )
