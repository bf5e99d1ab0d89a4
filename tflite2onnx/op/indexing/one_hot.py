"""ONE_HOT, MATRIX_DIAG and MATRIX_SET_DIAG: values at indices and on diagonals."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    check_element_count,
    drop_axis,
    expect,
    expect_input_count,
    integer,
    require_equal_shapes,
)
from tflite2onnx.op.traits import AnySizes, ComputesMatrices, Foldable, Movement
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array
from tflite2onnx.utils.dimension import has_dimensions, is_known


class OneHot(Movement, Foldable):
    """ONE_HOT: along a new axis, the value `on` at an index and the value `off` elsewhere.

    An index outside of the new axis sets no element. ONNX's OneHot would count negative indices
    from the end.
    """

    codes = ("ONE_HOT",)
    shape_inputs = (1,)
    operands = "index, int32~ [1*], T:float32|int32|int64|int8|uint8|bool [1*], T [1*] -> T"

    @cached_property
    def _axis(self) -> int:
        rank, axis = self.input(0).rank, int(self.options.axis)
        if not -1 <= axis <= rank:
            raise OperatorError(f"axis must be between -1 and {rank}, got {axis}")
        return rank if axis == -1 else axis

    @cached_property
    def _depth(self) -> int:
        depth = integer(self, 1)
        if is_known(depth) and depth < 0:
            raise OperatorError(f"depth must not be negative, got {depth}")
        return depth

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        depth = Unknown() if self.has_data_dependent_shape else self._depth
        return [(*shape[: self._axis], depth, *shape[self._axis :])]

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        return [Frame({0: drop_axis(names, self._axis), ~0: names}, names)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else ()

    def emit(self, g: Builder, y: View, indices: View, depth: View, on: View, off: View) -> Value:
        axis = y.axis(self._axis)
        shape = [-1 if i == axis else 1 for i in range(y.rank)]
        column = g.Unsqueeze(indices, [axis])
        hot = g.Equal(column, self._make_axis_indices(g, indices, depth, shape))
        return g.where(hot, on.reshape(()), off.reshape(()), y.dtype)

    def _make_axis_indices(
        self, g: Builder, indices: View, depth: View, shape: Sequence[int]
    ) -> Value | Array:
        if self.has_data_dependent_shape:
            zero, one = (g.scalar(i, indices.dtype) for i in range(2))
            count = g.recast(depth.reshape(()), depth.dtype, indices.dtype)
            return g.reshape(g.Range(zero, count, one), shape)
        check_element_count(self._depth)
        return np.arange(self._depth, dtype=indices.dtype.numpy).reshape(shape)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        indices, _, on, off = inputs
        columns = np.expand_dims(indices, self._axis)
        shape = [-1 if i == self._axis else 1 for i in range(columns.ndim)]
        hot = columns == np.arange(self._depth).reshape(shape)
        return [np.where(hot, on.reshape(()), off.reshape(()))]


class MatrixDiag(AnySizes, ComputesMatrices):
    """MATRIX_DIAG: vectors as the diagonals of matrices that are 0 elsewhere.

    MATRIX_SET_DIAG replaces the diagonals of matrices, which are an input.
    """

    codes = ("MATRIX_DIAG", "MATRIX_SET_DIAG")
    # The kernels read any other type as elements of 32 bits.
    operands = "T:float32|int8|int16|int32|int64|uint8, T? -> T"
    quantization = Integers(in_file_types=True)

    @property
    def batch_axes(self) -> int:
        return self.input(0).rank - (2 if self.op.code == "MATRIX_SET_DIAG" else 1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0).shape
        if self.op.code == "MATRIX_SET_DIAG" and not has_dimensions(x):
            require_equal_shapes(self.input(1).shape, (*x[:-2], min(x[-2:])))
        return [x if self.op.code == "MATRIX_SET_DIAG" else (*x, x[-1])]

    def check(self) -> None:
        x, sets = self.input(0), self.op.code == "MATRIX_SET_DIAG"
        expect_input_count(self, 1 + sets)
        if x.rank < 1 + sets:
            raise OperatorError(f"{x.name} must have at least {1 + sets} axes, got {x.rank}")
        if sets:
            expect(self.input(1), (*x.shape[:-2], min(x.shape[-2:])), x.dtype)

    def emit(self, g: Builder, y: View, x: View, diagonal: View | None = None) -> Value:
        zero = g.scalar(0, x.dtype)  # the stored integer 0, whatever the zero point is
        return g.with_compute_type(
            "Where",
            y.dtype,
            lambda v, other: self._place_diagonal(g, y, x, v, other),
            x if diagonal is None else diagonal,
            zero if diagonal is None else x,
        )

    def _place_diagonal(
        self, g: Builder, y: View, x: View, diagonal: Value, elsewhere: Value
    ) -> Value:
        """Return matrices with vectors on their diagonals.

        A vector broadcasts along the shorter side: as a row, or as a column.
        """
        rows, columns = y.shape[-2:]
        if any(axis in y.tensor.symbols for axis in (y.rank - 2, y.rank - 1)):
            return self._place_dynamic_diagonal(g, y, x, diagonal, elsewhere)
        check_element_count(rows * columns)
        on_diagonal = np.eye(rows, columns, dtype=np.bool_)
        axis = -2 if columns <= rows else -1
        return g.Where(on_diagonal, g.Unsqueeze(diagonal, [axis]), elsewhere)

    def _place_dynamic_diagonal(
        self, g: Builder, y: View, x: View, diagonal: Value, elsewhere: Value
    ) -> Value:
        """Return the result of `_place_diagonal` with dynamic sides: vectors broadcast as rows."""
        sides = [g.reshape(g.runtime_shape([size], x), []) for size in y.sizes[-2:]]
        down, along = (g.Range(0, side, 1) for side in sides)
        on_diagonal = g.Equal(g.Unsqueeze(down, [1]), along)
        # The row needs an element for each column, so the last element is repeated. Where selects
        # none of the copies.
        indices = g.Min(along, g.Sub(sides[0], 1))
        row = diagonal if y.sizes[-1] == y.sizes[-2] else g.Gather(diagonal, indices, axis=-1)
        return g.Where(on_diagonal, g.Unsqueeze(row, [-2]), elsewhere)
