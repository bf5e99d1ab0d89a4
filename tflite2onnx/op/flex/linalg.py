"""TensorFlow's linear algebra on small matrices, step by step: ONNX has none but products.

All steps are written out, in double precision, so that what is made is the result rounded once;
TensorFlow's own rounding is what differs. Matrices without an inverse make infinities or NaN,
where TensorFlow's kernels fail.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_MATRIX = 2  # axes
_LARGEST = 64  # side; each row takes a dozen nodes
_REAL = (DType.FLOAT32, DType.FLOAT64)
_F64 = DType.FLOAT64


class _Algebra(DynamicShape):
    """What has square matrices as its first input."""

    custom = True
    category = Category.TERMINATE

    @property
    def _side(self) -> int:
        x = self.input(0)
        expect_type(x, _REAL)
        if x.rank < _MATRIX or x.shape[-1] != x.shape[-2] or not 0 < x.shape[-1] <= _LARGEST:
            raise OperatorError(f"{list(x.shape)} are no square matrices of up to {_LARGEST} rows")
        return x.shape[-1]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.input(0).rank - _MATRIX

    def _matrices(self, g: Builder, x: View, *, turned: bool = False) -> Value:
        """Return matrices as [batch, rows, columns] of float64."""
        value = g.recast(g.reshape(x, (-1, *x.shape[-2:])), x.dtype, _F64)
        return g.Transpose(value, perm=[0, 2, 1]) if turned else value

    @staticmethod
    def _reshape_result(g: Builder, value: Value, y: View) -> Value:
        return g.reshape(g.recast(value, _F64, y.dtype), y.sizes)


class FlexSolve(_Algebra):
    """FlexMatrixInverse and FlexMatrixSolve: X of A X = B, by Gauss-Jordan elimination."""

    codes = ("FlexMatrixInverse", "FlexMatrixSolve")

    def check(self) -> None:
        x, side = self.input(0), self._side
        if self.op.code == "FlexMatrixSolve":
            right = self.input(1)
            expect(right, (*x.shape[:-1], *right.shape[-1:]), x.dtype)
            expect(self.output, right.shape, x.dtype)
        else:
            expect(self.output, (*x.shape[:-2], side, side), x.dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        left = self._matrices(g, xs[0], turned=bool(self.options.get("adjoint", False)))
        if self.op.code == "FlexMatrixSolve":
            right = self._matrices(g, xs[1])
        else:
            right = g.Expand(g.constant(np.eye(self._side)), g.Shape(left))
        return self._reshape_result(g, _solve_equations(g, left, right, self._side), y)


class FlexTriangularSolve(_Algebra):
    """FlexMatrixTriangularSolve: X of A X = B, of A that half is looked at, row by row."""

    codes = ("FlexMatrixTriangularSolve",)

    def check(self) -> None:
        x, right, side = self.input(0), self.input(1), self._side
        try:
            batch: Shape | None = np.broadcast_shapes(x.shape[:-2], right.shape[:-2])
        except ValueError:
            batch = None
        if batch is None or right.rank < _MATRIX or right.shape[-2] != side:
            raise OperatorError(f"{list(x.shape)} times something cannot be {list(right.shape)}")
        if x.shape[:-2] != right.shape[:-2]:
            raise OperatorError(f"batches {list(x.shape)} and {list(right.shape)} that differ")
        expect(right, right.shape, x.dtype)
        expect(self.output, (*batch, *right.shape[-2:]), x.dtype)

    def emit(self, g: Builder, y: View, x: View, right: View) -> Value:
        side, lower = self._side, bool(self.options.get("lower", True))
        adjoint = bool(self.options.get("adjoint", False))
        half = (np.tril if lower else np.triu)(np.ones((side, side), np.bool_))
        left = g.Where(half, self._matrices(g, x), g.scalar(0, _F64))
        if adjoint:
            left, lower = g.Transpose(left, perm=[0, 2, 1]), not lower
        rest, rows = self._matrices(g, right), {}
        for k in range(side) if lower else reversed(range(side)):
            column = g.Gather(left, g.ints([k]), axis=2)
            row = g.Gather(rest, g.ints([k]), axis=1)
            known = g.Div(row, g.Gather(column, g.ints([k]), axis=1))
            rest, rows[k] = g.Sub(rest, g.Mul(column, known)), known
        return self._reshape_result(g, g.Concat(*(rows[k] for k in range(side)), axis=1), y)


class FlexDeterminant(_Algebra):
    """FlexMatrixDeterminant and its logarithm: the product of all pivots of an elimination."""

    codes = ("FlexLogMatrixDeterminant", "FlexMatrixDeterminant")
    returns_tuple = True

    def check(self) -> None:
        x, _ = self.input(0), self._side
        for made in self.op.outputs:
            expect(made, x.shape[:-2], x.dtype)
        if len(self.op.outputs) != 1 + (self.op.code == "FlexLogMatrixDeterminant"):
            raise OperatorError(f"it has {len(self.op.outputs)} outputs")

    def emit(self, g: Builder, ys: tuple[View, ...], x: View) -> tuple[Value, ...]:
        left = self._matrices(g, x)
        pivots, signs = [], []
        for k in range(self._side):
            step = _Step(g, left, k, self._side)
            left = step.eliminate_column(step.divisor)
            pivots.append(step.pivot)
            signs.append(step.sign())
        if len(ys) == 1:
            factors, (found,) = g.Concat(*pivots, *signs, axis=1), ys
            return (self._reshape_result(g, _multiply_factors(g, factors), found),)
        sign = _multiply_factors(g, g.Sign(g.Concat(*pivots, *signs, axis=1)))
        sizes = g.Log(g.Abs(g.Concat(*pivots, axis=1)))
        total = g.reduce("ReduceSum", sizes, [1, 2], keepdims=False)
        return self._reshape_result(g, sign, ys[0]), self._reshape_result(g, total, ys[1])


class FlexCholesky(_Algebra):
    """FlexCholesky: L of L L^T = A, column by column; the lower half of A is looked at."""

    codes = ("FlexCholesky",)

    def check(self) -> None:
        x, _ = self.input(0), self._side
        expect(self.output, x.shape, x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        rest, columns = self._matrices(g, x), []
        for k in range(self._side):
            column = g.Gather(rest, g.ints([k]), axis=2)
            root = g.Sqrt(g.Gather(column, g.ints([k]), axis=1))
            below = (np.arange(self._side) >= k).reshape(-1, 1)
            column = g.Where(below, g.Div(column, root), g.scalar(0, _F64))
            columns.append(column)
            rest = g.Sub(rest, g.Mul(column, g.Transpose(column, perm=[0, 2, 1])))
        return self._reshape_result(g, g.Concat(*columns, axis=2), y)


class _Step:
    """A step of an elimination: the row with the largest number in a column is its pivot.

    Attributes:
        pivot: that number, [batch, 1, 1].
    """

    def __init__(self, g: Builder, matrix: Value, k: int, side: int) -> None:
        self._g, self._k, self._matrix = g, k, matrix
        self._rows = np.arange(side).reshape(side, 1)
        column = g.Gather(matrix, g.ints([k]), axis=2)
        left = g.Where(self._rows >= k, g.Abs(column), g.scalar(-1, _F64))
        self._found = g.ArgMax(left, axis=1, keepdims=1)
        chosen = g.GatherND(matrix, g.reshape(self._found, [-1, 1]), batch_dims=1)
        self._chosen = g.Unsqueeze(chosen, g.ints([1]))
        self.pivot = g.Gather(self._chosen, g.ints([k]), axis=2)

    @property
    def divisor(self) -> Value:
        """The pivot, or 1 where it is 0: a determinant is 0 then, whatever the other pivots are."""
        g, zero = self._g, self._g.scalar(0, _F64)
        return g.Where(g.Equal(self.pivot, zero), g.scalar(1, _F64), self.pivot)

    def eliminate_column(self, divisor: Value) -> Value:
        """Return the matrix whose column is 1 in its own row, which is the pivot's, else 0."""
        g, here = self._g, self._g.ints([self._k])
        row = g.Div(self._chosen, divisor)
        swapped = g.Where(
            g.Equal(g.constant(self._rows), self._found),
            g.Gather(self._matrix, here, axis=1),
            self._matrix,
        )
        rest = g.Sub(swapped, g.Mul(g.Gather(swapped, here, axis=2), row))
        return g.Where(self._rows == self._k, row, rest)

    def sign(self) -> Value:
        """Return -1 where two rows have been swapped, else 1."""
        g = self._g
        same = g.Equal(self._found, g.scalar(self._k, DType.INT64))
        return g.Where(same, g.scalar(1, _F64), g.scalar(-1, _F64))


def _solve_equations(g: Builder, left: Value, right: Value, side: int) -> Value:
    both = g.Concat(left, right, axis=2)
    for k in range(side):
        step = _Step(g, both, k, side)
        both = step.eliminate_column(step.pivot)
    return g.Slice(both, g.ints([side]), g.ints([1 << 31]), g.ints([2]))


def _multiply_factors(g: Builder, factors: Value) -> Value:
    return g.reduce("ReduceProd", factors, [1, 2], keepdims=False)
