"""Wrap-around arithmetic of unsigned integers, with the operators of C."""

from __future__ import annotations

from collections.abc import Sequence
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


def stack_words(g: Builder, words: Sequence[UnsignedInt]) -> UnsignedInt:
    """Return vectors of integers as the columns of a matrix."""
    columns = [g.Unsqueeze(word.value, [1]) for word in words]
    return UnsignedInt(g, g.Concat(*columns, axis=1), words[0].dtype)


def split_words(word: UnsignedInt) -> tuple[UnsignedInt, UnsignedInt]:
    """Return the low and the high 32 bits of uint64, each as uint32."""
    return word.as_type(DType.UINT32), (word >> 32).as_type(DType.UINT32)


def join_words(low: UnsignedInt, high: UnsignedInt) -> UnsignedInt:
    """Return uint64 of their low and high 32 bits."""
    return low.as_type(DType.UINT64) + (high.as_type(DType.UINT64) << 32)
