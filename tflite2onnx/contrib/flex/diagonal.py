"""TensorFlow's operators on the diagonals of matrices.

A map gives, for each position of a matrix, the index of its element in the packed diagonals.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np

from tflite2onnx.operators import (
    Array,
    Builder,
    ComputesMatrices,
    Operator,
    OperatorError,
    OutputShape,
    Shape,
    Value,
    View,
    check_element_count,
    expect,
    expect_input_count,
    integer,
    ints,
)

_MATRIX = 2  # axes
_ALIGNED = {"V2": "LEFT_LEFT", "V3": "RIGHT_LEFT"}  # the default of the option `align`, by version
_NOWHERE = -1


class _Diagonals(Operator):
    """Base class of the operators on a range of diagonals.

    Attributes:
        place_of_k: the index of the input with the range; version 1 has the main diagonal only.
        counts: the number of inputs of version 1, and of later versions.
    """

    place_of_k = 1
    counts: ClassVar[tuple[int, int]]

    def check(self) -> None:
        expect_input_count(self, self.counts[self._is_later])

    @property
    def _is_later(self) -> bool:
        """Whether this is version 2 or 3 of the operator."""
        return self.op.code[-2:] in _ALIGNED

    @cached_property
    def _range(self) -> tuple[int, int]:
        """The lowest and the highest diagonal; 0 is the main diagonal."""
        numbers = ints(self, self.place_of_k) if self._is_later else [0]
        if len(numbers) not in (1, 2) or numbers[0] > numbers[-1]:
            raise OperatorError(
                f"k must be 1 diagonal, or the lowest and the highest, got {numbers}"
            )
        return numbers[0], numbers[-1]

    @property
    def _count(self) -> int:
        return self._range[1] - self._range[0] + 1

    def _find_packed_shape(self, rows: int, columns: int) -> Shape:
        """Return the shape of packed diagonals: [length] of a single one, else [count, longest]."""
        low, high = self._range
        if min(rows, columns, rows + low, columns - high) <= 0:
            raise OperatorError(
                f"the diagonals k must be within {rows} rows and {columns} columns, got "
                f"{self._range}"
            )
        longest = min(rows + min(high, 0), columns - max(low, 0))
        check_element_count(rows * columns)
        return (longest,) if self._count == 1 else (self._count, longest)

    def _make_map(self, rows: int, columns: int) -> Array:
        """Return the map of a matrix, int64 [rows, columns]; _NOWHERE outside of the diagonals."""
        longest = self._find_packed_shape(rows, columns)[-1]
        usual = _ALIGNED.get(self.op.code[-2:], "LEFT_LEFT")
        upper, _, lower = str(self.options.get("align", usual)).partition("_")
        low, high = self._range
        row, column = np.ogrid[:rows, :columns]
        k = column - row
        length = np.minimum(rows + np.minimum(k, 0), columns - np.maximum(k, 0))
        aligned_right = np.where(k >= 0, upper == "RIGHT", lower == "RIGHT")
        first = (high - k) * longest + np.where(aligned_right, longest - length, 0)
        index = first + np.minimum(row, column)
        return np.where((k >= low) & (k <= high), index, _NOWHERE)

    def _place_diagonals(
        self, g: Builder, packed: View, index_map: Array, elsewhere: View | Value, y: View
    ) -> Value:
        """Return matrices with packed diagonals at the positions of a map, else `elsewhere`."""
        flat = packed.value
        if self._count > 1:
            flat = g.reshape(flat, (*packed.sizes[:-2], prod(packed.shape[-2:])))
        selected = g.Gather(flat, np.maximum(index_map, 0), axis=-1)
        return g.where(index_map >= 0, selected, elsewhere, y.dtype)


class FlexMatrixDiag(_Diagonals, ComputesMatrices):
    """FlexMatrixDiag: matrices with the given diagonals, and one number elsewhere."""

    codes = ("FlexMatrixDiag", "FlexMatrixDiagV2", "FlexMatrixDiagV3")
    operands = "T, any?, any?, any?, T? [1*] -> T"
    counts = (1, 5)

    @cached_property
    def _sides(self) -> Shape:
        packed, (low, high) = self.input(0), self._range
        if packed.rank < min(self._count, _MATRIX):
            raise OperatorError(
                f"{packed.name} must have {min(self._count, _MATRIX)} or more axes, got "
                f"{packed.rank}"
            )
        longest = packed.shape[-1]
        length = longest - min(high, 0), longest + max(low, 0)
        given_sizes = (integer(self, 2), integer(self, 3)) if self._is_later else (-1, -1)
        if given_sizes == (-1, -1):
            return max(length), max(length)
        return tuple(b if a == -1 else a for a, b in zip(given_sizes, length, strict=True))

    @property
    def batch_axes(self) -> int:
        return self.input(0).rank - min(self._count, _MATRIX)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*self.input(0).shape[: self.batch_axes], *self._sides)]

    def check(self) -> None:
        super().check()
        x = self.input(0)
        packed = self._find_packed_shape(*self._sides)
        expect(x, (*x.shape[: self.batch_axes], *packed), x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.batch_axes

    def emit(self, g: Builder, y: View, x: View, *more: View) -> Value:
        elsewhere = more[-1].reshape(()) if more else g.scalar(0, x.dtype)
        return self._place_diagonals(g, x, self._make_map(*self._sides), elsewhere, y)


class FlexMatrixSetDiag(_Diagonals, ComputesMatrices):
    """FlexMatrixSetDiag: matrices with replaced diagonals."""

    codes = ("FlexMatrixSetDiag", "FlexMatrixSetDiagV2", "FlexMatrixSetDiagV3")
    operands = "T [... rows columns], T, any? -> T [... rows columns]"
    counts = (2, 3)
    matrix_axes = _MATRIX
    place_of_k = 2

    def check(self) -> None:
        super().check()
        x = self.input(0)
        packed = self._find_packed_shape(*x.shape[-2:])
        expect(self.input(1), (*x.shape[:-2], *packed), x.dtype)

    def emit(self, g: Builder, y: View, x: View, packed: View, *_: View) -> Value:
        return self._place_diagonals(g, packed, self._make_map(*x.shape[-2:]), x, y)


class FlexMatrixDiagPart(_Diagonals, ComputesMatrices):
    """FlexMatrixDiagPart: the diagonals of matrices, padded with a number to equal length."""

    codes = ("FlexMatrixDiagPart", "FlexMatrixDiagPartV2", "FlexMatrixDiagPartV3")
    operands = "T [... rows columns], any?, T? [1*] -> T"
    counts = (1, 3)
    matrix_axes = _MATRIX

    def infer_outputs(self) -> Sequence[OutputShape]:
        *batch, rows, columns = self.input(0).shape
        return [(*batch, *self._find_packed_shape(rows, columns))]

    def emit(self, g: Builder, y: View, x: View, *more: View) -> Value:
        rows, columns = x.shape[-2:]
        index_map = self._make_map(rows, columns).reshape(-1)
        source = np.full(self._find_packed_shape(rows, columns), _NOWHERE, np.int64)
        source.reshape(-1)[index_map[index_map >= 0]] = np.flatnonzero(index_map >= 0)
        flat = g.reshape(x, (*x.sizes[:-2], rows * columns))
        selected = g.Gather(flat, np.maximum(source, 0), axis=-1)
        if (source >= 0).all():
            return selected
        return g.where(source >= 0, selected, more[-1].reshape(()), y.dtype)


class FlexDiag(Operator):
    """FlexDiag and FlexDiagPart: the diagonal tensor of a tensor, and the inverse."""

    codes = ("FlexDiag", "FlexDiagPart")
    operands = "T -> T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0).shape
        return [x[: len(x) // 2] if self.op.code == "FlexDiagPart" else (*x, *x)]

    def check(self) -> None:
        x, part = self.input(0), self.op.code == "FlexDiagPart"
        half = x.shape[: x.rank // 2] if part else x.shape
        check_element_count(prod(half) ** 2)
        if not half:
            raise OperatorError(f"{x.name} must have at least 1 axis, got {x.rank}")
        expect(x, (*half, *half) if part else half, x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if self.op.code == "FlexDiagPart":
            size = prod(y.shape)
            flat = g.reshape(x, [size * size])
            places = np.arange(size) * (size + 1)
            return g.reshape(g.Gather(flat, places, axis=0), y.shape)
        on_diagonal = np.eye(prod(x.shape), dtype=np.bool_)
        row, zero = g.reshape(x, [1, prod(x.shape)]), g.scalar(0, x.dtype)
        return g.reshape(g.where(on_diagonal, row, zero, x.dtype), y.shape)


class FlexMatrixBandPart(ComputesMatrices):
    """FlexMatrixBandPart: matrices that are 0 outside of a band around the main diagonal."""

    codes = ("FlexMatrixBandPart",)
    matrix_axes = _MATRIX
    operands = "T [... rows columns], any [1*], any [1*] -> T [... rows columns]"

    def check(self) -> None:
        check_element_count(prod(self.input(0).shape[-2:]))

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        rows, columns = x.shape[-2:]
        (lower,), (upper,) = ints(self, 1), ints(self, 2)
        right = np.arange(columns) - np.arange(rows).reshape(rows, 1)
        band = ((lower < 0) | (-right <= lower)) & ((upper < 0) | (right <= upper))
        return g.where(band, x, g.scalar(0, x.dtype), x.dtype)
