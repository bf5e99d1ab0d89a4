"""TensorFlow's operators on the diagonals of matrices.

A map of a matrix says which element of its diagonals, as TensorFlow packs them, stands where.
"""

from __future__ import annotations

from functools import cached_property, partial
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, ints
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import Array, Shape

_MATRIX = 2  # axes
_ALIGNED = {"V2": "LEFT_LEFT", "V3": "RIGHT_LEFT"}  # unless it says so itself
_NOWHERE = -1


class _Diagonals(Operator):
    """What knows which diagonals of its matrices it reads or sets.

    Attributes:
        place_of_k: the input that says which diagonals; without it there is the main one alone.
    """

    custom = True
    category = Category.TERMINATE
    place_of_k = 1

    @cached_property
    def _range(self) -> tuple[int, int]:
        """The lowest diagonal and the highest."""
        numbers = ints(self, self.place_of_k) if self.op.code[-2:] in _ALIGNED else [0]
        if len(numbers) not in (1, 2) or numbers[0] > numbers[-1]:
            raise OperatorError(f"diagonals {numbers}")
        return numbers[0], numbers[-1]

    @property
    def _count(self) -> int:
        return self._range[1] - self._range[0] + 1

    def _packed_shape(self, rows: int, columns: int) -> Shape:
        """Return the shape of the diagonals of a matrix: one, or as many rows as there are."""
        lengths = [self._length(k, rows, columns) for k in self._range]
        if min(lengths) <= 0 or not rows or not columns:
            raise OperatorError(f"diagonals {self._range} of {rows} rows and {columns} columns")
        low, high = self._range
        longest = min(rows + min(high, 0), columns - max(low, 0))
        check_element_count(rows * columns)
        return (longest,) if self._count == 1 else (self._count, longest)

    @staticmethod
    def _length(k: int, rows: int, columns: int) -> int:
        return min(rows + min(k, 0), columns - max(k, 0))

    def _map(self, rows: int, columns: int) -> Array:
        """Return which element of the diagonals is where in a matrix: int64, or _NOWHERE."""
        longest = self._packed_shape(rows, columns)[-1]
        upper, _, lower = str(
            self.options.get("align", _ALIGNED.get(self.op.code[-2:], "LEFT_LEFT"))
        ).partition("_")
        low, high = self._range
        row, column = np.ogrid[:rows, :columns]
        k = column - row
        length = np.minimum(rows + np.minimum(k, 0), columns - np.maximum(k, 0))
        behind = np.where(k >= 0, upper == "RIGHT", lower == "RIGHT")
        first = (high - k) * longest + np.where(behind, longest - length, 0)
        found = first + np.minimum(row, column)
        return np.where((k >= low) & (k <= high), found, _NOWHERE)

    def _place_diagonals(
        self, g: Builder, packed: View, where: Array, elsewhere: View | Value, y: View
    ) -> Value:
        """Return matrices with the diagonals where a map says, and something else elsewhere."""
        flat = packed.value
        if self._count > 1:
            flat = g.reshape(flat, (*packed.sizes[:-2], prod(packed.shape[-2:])))
        taken = g.Gather(flat, np.maximum(where, 0), axis=-1)
        return g.with_compute_type("Where", y.dtype, partial(g.Where, where >= 0), taken, elsewhere)


class FlexMatrixDiag(_Diagonals, DynamicShape):
    """FlexMatrixDiag: matrices with vectors on their diagonals, and one number elsewhere."""

    codes = ("FlexMatrixDiag", "FlexMatrixDiagV2", "FlexMatrixDiagV3")

    @cached_property
    def _sides(self) -> Shape:
        packed, (low, high) = self.input(0), self._range
        if packed.rank < min(self._count, _MATRIX):
            raise OperatorError(f"{packed.name} has {packed.rank} axes")
        longest = packed.shape[-1]
        least = longest - min(high, 0), longest + max(low, 0)
        given = (-1, -1)
        if self.op.code[-2:] in _ALIGNED:
            (rows,), (columns,) = ints(self, 2), ints(self, 3)
            given = rows, columns
        if given == (-1, -1):
            return max(least), max(least)
        sides = zip(given, least, strict=True)
        return tuple(want if have == -1 else have for have, want in sides)

    @property
    def _batch(self) -> int:
        """How many axes are in front of the diagonals."""
        return self.input(0).rank - min(self._count, _MATRIX)

    def check(self) -> None:
        x = self.input(0)
        packed = self._packed_shape(*self._sides)
        expect(x, (*x.shape[: self._batch], *packed), x.dtype)
        expect(self.output, (*x.shape[: self._batch], *self._sides), x.dtype)
        if self.op.code[-2:] in _ALIGNED:
            expect(self.input(4), (1,) * self.input(4).rank, x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self._batch

    def emit(self, g: Builder, y: View, x: View, *more: View) -> Value:
        elsewhere = more[-1].reshape(()) if more else g.scalar(0, x.dtype)
        return self._place_diagonals(g, x, self._map(*self._sides), elsewhere, y)


class FlexMatrixSetDiag(_Diagonals, DynamicShape):
    """FlexMatrixSetDiag: matrices with other vectors on their diagonals."""

    codes = ("FlexMatrixSetDiag", "FlexMatrixSetDiagV2", "FlexMatrixSetDiagV3")
    place_of_k = 2

    def check(self) -> None:
        x = self.input(0)
        packed = self._packed_shape(*_matrix_sides(x.shape))
        expect(self.input(1), (*x.shape[:-2], *packed), x.dtype)
        expect(self.output, x.shape, x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.input(0).rank - _MATRIX

    def emit(self, g: Builder, y: View, x: View, packed: View, *_: View) -> Value:
        return self._place_diagonals(g, packed, self._map(*x.shape[-2:]), x, y)


class FlexMatrixDiagPart(_Diagonals, DynamicShape):
    """FlexMatrixDiagPart: the diagonals of matrices, with a number behind or before short ones."""

    codes = ("FlexMatrixDiagPart", "FlexMatrixDiagPartV2", "FlexMatrixDiagPartV3")

    def check(self) -> None:
        x = self.input(0)
        packed = self._packed_shape(*_matrix_sides(x.shape))
        expect(self.output, (*x.shape[:-2], *packed), x.dtype)
        if self.op.code[-2:] in _ALIGNED:
            expect(self.input(2), (1,) * self.input(2).rank, x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.input(0).rank - _MATRIX

    def emit(self, g: Builder, y: View, x: View, *more: View) -> Value:
        rows, columns = x.shape[-2:]
        where = self._map(rows, columns).reshape(-1)
        source = np.full(self._packed_shape(rows, columns), _NOWHERE, np.int64)
        source.reshape(-1)[where[where >= 0]] = np.flatnonzero(where >= 0)
        taken = g.Gather(
            g.reshape(x, (*x.sizes[:-2], rows * columns)), np.maximum(source, 0), axis=-1
        )
        if (source >= 0).all():
            return taken
        there = partial(g.Where, source >= 0)
        return g.with_compute_type("Where", y.dtype, there, taken, more[-1].reshape(()))


class FlexDiag(Operator):
    """FlexDiag and FlexDiagPart: a tensor as the diagonal of one with its axes twice, or back."""

    codes = ("FlexDiag", "FlexDiagPart")
    custom = True
    category = Category.TERMINATE

    def check(self) -> None:
        x, part = self.input(0), self.op.code == "FlexDiagPart"
        half = x.shape[: x.rank // 2] if part else x.shape
        check_element_count(prod(half) ** 2)
        if not half:
            raise OperatorError(f"{x.name} has {x.rank} axes")
        expect(x, (*half, *half) if part else half, x.dtype)
        expect(self.output, half if part else (*half, *half), x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if self.op.code == "FlexDiagPart":
            size = prod(y.shape)
            flat = g.reshape(x, [size * size])
            return g.reshape(g.Gather(flat, np.arange(size) * (size + 1), axis=0), y.shape)
        here = np.eye(prod(x.shape), dtype=np.bool_)
        row, nothing = g.reshape(x, [1, prod(x.shape)]), g.scalar(0, x.dtype)
        return g.reshape(
            g.with_compute_type("Where", x.dtype, partial(g.Where, here), row, nothing), y.shape
        )


class FlexMatrixBandPart(DynamicShape):
    """FlexMatrixBandPart: matrices that are 0 but for some diagonals around the main one."""

    codes = ("FlexMatrixBandPart",)
    custom = True
    category = Category.TERMINATE

    def check(self) -> None:
        x = self.input(0)
        rows, columns = _matrix_sides(x.shape)
        check_element_count(rows * columns)
        for i in (1, 2):
            if len(ints(self, i)) != 1:
                raise OperatorError(f"{self.input(i).name} has {self.input(i).elements} elements")
        expect(self.output, x.shape, x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.input(0).rank - _MATRIX

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        rows, columns = x.shape[-2:]
        (lower,), (upper,) = ints(self, 1), ints(self, 2)
        right = np.arange(columns) - np.arange(rows).reshape(rows, 1)
        band = ((lower < 0) | (-right <= lower)) & ((upper < 0) | (right <= upper))
        return g.with_compute_type(
            "Where", x.dtype, partial(g.Where, band), x, g.scalar(0, x.dtype)
        )


def _matrix_sides(shape: Shape) -> Shape:
    """Return how many rows and columns matrices have; OperatorError if they are none."""
    if len(shape) < _MATRIX:
        raise OperatorError(f"{list(shape)} are no matrices")
    return shape[-2:]
