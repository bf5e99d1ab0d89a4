"""Arithmetic of unsigned integers that wrap around, written down as one writes it in C."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tflite2onnx.builder.builder import Builder, Value
from tflite2onnx.tensor import DType


@dataclass(frozen=True)
class Word:
    """Unsigned integers of 32 or 64 bits, and how to compute with them and with plain numbers."""

    g: Builder
    value: Value
    dtype: DType

    def _with(self, node: str, other: Word | int, **attributes: str) -> Word:
        operand = self.g.scalar(other, self.dtype) if isinstance(other, int) else other.value
        return replace(self, value=self.g.node(node, self.value, operand, **attributes))

    def __add__(self, other: Word | int) -> Word:
        return self._with("Add", other)

    def __mul__(self, other: Word | int) -> Word:
        return self._with("Mul", other)

    def __xor__(self, other: Word | int) -> Word:
        return self._with("BitwiseXor", other)

    def __and__(self, other: Word | int) -> Word:
        return self._with("BitwiseAnd", other)

    def __lshift__(self, places: int) -> Word:
        return self._with("BitShift", places, direction="LEFT")

    def __rshift__(self, places: int) -> Word:
        return self._with("BitShift", places, direction="RIGHT")

    def rotated_left(self, places: int) -> Word:
        """Return the words with all bits moved up, those that leave at the top below."""
        return (self << places) + (self >> (self.dtype.bits - places))

    def as_type(self, dtype: DType) -> Word:
        """Return the words in another type, which holds as many of the lowest bits as it can."""
        return Word(self.g, self.g.recast(self.value, self.dtype, dtype), dtype)


def halves(word: Word) -> tuple[Word, Word]:
    """Return the low and the high 32 bits of words of 64."""
    return word.as_type(DType.UINT32), (word >> 32).as_type(DType.UINT32)
