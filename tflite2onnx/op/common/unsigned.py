"""Wrap-around arithmetic of unsigned integers, with the operators of C."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tflite2onnx.builder.builder import Builder, Value
from tflite2onnx.tensor import DType


@dataclass(frozen=True)
class UnsignedInt:
    """A tensor of uint32 or uint64; operators take another such tensor, or a Python number."""

    g: Builder
    value: Value
    dtype: DType

    def _apply_node(self, node: str, other: UnsignedInt | int, **attributes: str) -> UnsignedInt:
        operand = self.g.scalar(other, self.dtype) if isinstance(other, int) else other.value
        return replace(self, value=self.g.node(node, self.value, operand, **attributes))

    def __add__(self, other: UnsignedInt | int) -> UnsignedInt:
        return self._apply_node("Add", other)

    def __mul__(self, other: UnsignedInt | int) -> UnsignedInt:
        return self._apply_node("Mul", other)

    def __xor__(self, other: UnsignedInt | int) -> UnsignedInt:
        return self._apply_node("BitwiseXor", other)

    def __and__(self, other: UnsignedInt | int) -> UnsignedInt:
        return self._apply_node("BitwiseAnd", other)

    def __lshift__(self, places: int) -> UnsignedInt:
        return self._apply_node("BitShift", places, direction="LEFT")

    def __rshift__(self, places: int) -> UnsignedInt:
        return self._apply_node("BitShift", places, direction="RIGHT")

    def rotate_left(self, places: int) -> UnsignedInt:
        """Return the integers with their bits rotated to the left."""
        return (self << places) + (self >> (self.dtype.bits - places))

    def as_type(self, dtype: DType) -> UnsignedInt:
        """Return the integers in another type; a narrower type keeps the lowest bits."""
        return UnsignedInt(self.g, self.g.recast(self.value, self.dtype, dtype), dtype)
