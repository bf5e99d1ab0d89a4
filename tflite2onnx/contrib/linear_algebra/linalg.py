"""TensorFlow's linear algebra on small matrices, and products in types that TFLite lacks.

ONNX has only products of matrices. Operators on small matrices are unrolled nodes, in double
precision, so the result is rounded only once; it differs from TensorFlow by TensorFlow's rounding.
Singular matrices give infinities or NaN, where TensorFlow's kernels fail.
"""

import re
from collections.abc import Sequence

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Builder,
    ComputesMatrices,
    DType,
    Operator,
    OperatorError,
    OutputShape,
    Value,
    View,
    expect_output_count,
)
from tflite2onnx.sizes import Dim, infer_product, require_equal

_MATRIX = 2  # axes
_LARGEST = 64  # the largest number of rows of a matrix; each row takes about 12 nodes
_F64 = DType.FLOAT64
_TYPES = "float32|float64|float16|int16|int32|int64"


class _Algebra(ComputesMatrices):
    """Base class of the operators whose first input is square matrices."""

    operands = "T:float32|float64 [... n n] -> T"
    matrix_axes = _MATRIX

    @property
    def _side(self) -> int:
        return self.input(0).shape[-1]

    def check(self) -> None:
        if not 0 < self._side <= _LARGEST:
            raise OperatorError(f"matrices must have 1 to {_LARGEST} rows, got {self._side}")

    def _flatten_batches(self, g: Builder, x: View, *, transposed: bool = False) -> Value:
        """Return matrices as float64 [batch, rows, columns], optionally transposed."""
        value = g.recast(g.reshape(x, (-1, *x.shape[-2:])), x.dtype, _F64)
        return g.Transpose(value, perm=[0, 2, 1]) if transposed else value

    @staticmethod
    def _reshape_result(g: Builder, value: Value, y: View) -> Value:
        return g.reshape(g.recast(value, _F64, y.dtype), y.sizes)


class FlexSolve(_Algebra):
    """FlexMatrixInverse and FlexMatrixSolve: solve A X = B by Gauss-Jordan elimination."""

    codes = ("FlexMatrixInverse", "FlexMatrixSolve")
    operands = "T:float32|float64 [... n n], T? [... n k] -> T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [self.input(len(self.op.inputs) - 1).shape]

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        left = self._flatten_batches(g, xs[0], transposed=bool(self.options.get("adjoint", False)))
        if self.op.code == "FlexMatrixSolve":
            right = self._flatten_batches(g, xs[1])
        else:
            right = g.Expand(g.constant(np.eye(self._side)), g.Shape(left))
        return self._reshape_result(g, _solve_equations(g, left, right, self._side), y)


class FlexTriangularSolve(_Algebra):
    """FlexMatrixTriangularSolve: solve A X = B row by row; only half of A is read."""

    codes = ("FlexMatrixTriangularSolve",)
    operands = "T:float32|float64 [... n n], T [... n k] -> T [... n k]"

    def emit(self, g: Builder, y: View, x: View, right: View) -> Value:
        side, lower = self._side, bool(self.options.get("lower", True))
        adjoint = bool(self.options.get("adjoint", False))
        half = (np.tril if lower else np.triu)(np.ones((side, side), np.bool_))
        left = g.Where(half, self._flatten_batches(g, x), g.scalar(0, _F64))
        if adjoint:
            left, lower = g.Transpose(left, perm=[0, 2, 1]), not lower
        remaining, rows = self._flatten_batches(g, right), {}
        for k in range(side) if lower else reversed(range(side)):
            column = g.Gather(left, [k], axis=2)
            row = g.Gather(remaining, [k], axis=1)
            solved = g.Div(row, g.Gather(column, [k], axis=1))
            remaining, rows[k] = g.Sub(remaining, g.Mul(column, solved)), solved
        return self._reshape_result(g, g.Concat(*(rows[k] for k in range(side)), axis=1), y)


class FlexDeterminant(_Algebra):
    """FlexMatrixDeterminant and FlexLogMatrixDeterminant: the product of elimination pivots."""

    codes = ("FlexLogMatrixDeterminant", "FlexMatrixDeterminant")
    operands = "T:float32|float64 [... n n] -> T [...], T? [...]"

    def check(self) -> None:
        super().check()
        expect_output_count(self, 1 + (self.op.code == "FlexLogMatrixDeterminant"))

    def emit(self, g: Builder, ys: tuple[View, ...], x: View) -> tuple[Value, ...]:
        matrix = self._flatten_batches(g, x)
        pivots, signs = [], []
        for k in range(self._side):
            step = _EliminationStep(g, matrix, k, self._side)
            matrix = step.eliminate_column(step.divisor)
            pivots.append(step.pivot)
            signs.append(step.swap_sign())
        if len(ys) == 1:
            factors, (y,) = g.Concat(*pivots, *signs, axis=1), ys
            return (self._reshape_result(g, _multiply_factors(g, factors), y),)
        sign = _multiply_factors(g, g.Sign(g.Concat(*pivots, *signs, axis=1)))
        sizes = g.Log(g.Abs(g.Concat(*pivots, axis=1)))
        total = g.reduce("ReduceSum", sizes, [1, 2], keepdims=False)
        return self._reshape_result(g, sign, ys[0]), self._reshape_result(g, total, ys[1])


class FlexCholesky(_Algebra):
    """FlexCholesky: the L of L L^T = A, column by column; only the lower half of A is read."""

    codes = ("FlexCholesky",)
    keeps_shape = True

    def emit(self, g: Builder, y: View, x: View) -> Value:
        remaining, columns = self._flatten_batches(g, x), []
        for k in range(self._side):
            column = g.Gather(remaining, [k], axis=2)
            root = g.Sqrt(g.Gather(column, [k], axis=1))
            below = (np.arange(self._side) >= k).reshape(-1, 1)
            column = g.Where(below, g.Div(column, root), g.scalar(0, _F64))
            columns.append(column)
            remaining = g.Sub(remaining, g.Mul(column, g.Transpose(column, perm=[0, 2, 1])))
        return self._reshape_result(g, g.Concat(*columns, axis=2), y)


class _EliminationStep:
    """A step of an elimination with partial pivoting.

    Attributes:
        pivot: the element of column k with the largest absolute value, from row k on,
            [batch, 1, 1].
    """

    def __init__(self, g: Builder, matrix: Value, k: int, side: int) -> None:
        self._g, self._k, self._matrix = g, k, matrix
        self._rows = np.arange(side).reshape(side, 1)
        column = g.Gather(matrix, [k], axis=2)
        candidates = g.Where(self._rows >= k, g.Abs(column), g.scalar(-1, _F64))
        self._pivot_row = g.ArgMax(candidates, axis=1, keepdims=1)
        row = g.GatherND(matrix, g.reshape(self._pivot_row, [-1, 1]), batch_dims=1)
        self._pivot_values = g.Unsqueeze(row, [1])
        self.pivot = g.Gather(self._pivot_values, [k], axis=2)

    @property
    def divisor(self) -> Value:
        """The pivot, or 1 if the pivot is 0: then the determinant is 0 for any other pivots."""
        g, zero = self._g, self._g.scalar(0, _F64)
        return g.Where(g.Equal(self.pivot, zero), g.scalar(1, _F64), self.pivot)

    def eliminate_column(self, divisor: Value) -> Value:
        """Return the matrix after the swap of rows, with column k 1 in row k and 0 elsewhere."""
        g, index = self._g, [self._k]
        row = g.Div(self._pivot_values, divisor)
        swapped = g.Where(
            g.Equal(g.constant(self._rows), self._pivot_row),
            g.Gather(self._matrix, index, axis=1),
            self._matrix,
        )
        others = g.Sub(swapped, g.Mul(g.Gather(swapped, index, axis=2), row))
        return g.Where(self._rows == self._k, row, others)

    def swap_sign(self) -> Value:
        """Return -1 where two rows are swapped, else 1."""
        g = self._g
        is_same_row = g.Equal(self._pivot_row, self._k)
        return g.Where(is_same_row, g.scalar(1, _F64), g.scalar(-1, _F64))


def _solve_equations(g: Builder, left: Value, right: Value, side: int) -> Value:
    augmented = g.Concat(left, right, axis=2)
    for k in range(side):
        step = _EliminationStep(g, augmented, k, side)
        augmented = step.eliminate_column(step.pivot)
    return g.Slice(augmented, [side], [1 << 31], [2])


def _multiply_factors(g: Builder, factors: Value) -> Value:
    return g.reduce("ReduceProd", factors, [1, 2], keepdims=False)


class FlexMatMul(AnySizes):
    """Matrix products in types that TFLite lacks, such as float64 and integers.

    Products of float16 are accumulated in float32.
    """

    codes = ("FlexBatchMatMul", "FlexBatchMatMulV2", "FlexBatchMatMulV3", "FlexMatMul")
    operands = f"T:{_TYPES}, T -> T"

    @property
    def _transposes(self) -> tuple[bool, bool]:
        return bool(self.options.get("adj_x")), bool(self.options.get("adj_y"))

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [infer_product(self.input(0).shape, self.input(1).shape, self._transposes)]

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        dtype = DType.INT32 if y.dtype is DType.INT16 else y.dtype
        factors = [
            g.Transpose(x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2]) if turned else x.value
            for x, turned in zip(xs, self._transposes, strict=True)
        ]
        return g.recast(g.MatMul(*(g.recast(x, y.dtype, dtype) for x in factors)), dtype, y.dtype)


class FlexEinsum(AnySizes):
    """FlexEinsum: Einstein sums; the equation has the same meaning in ONNX."""

    codes = ("FlexEinsum",)
    operands = f"T:{_TYPES}* -> T"

    @property
    def _equation(self) -> str:
        """The equation, with unused letters in place of an ellipsis."""
        equation = str(self.options.get("equation", ""))
        terms = equation.partition("->")[0].split(",")
        pairs = zip(self.op.present, terms, strict=False)
        counts = {t.rank - len(term) + 3 for t, term in pairs if "..." in term}
        unused = [chr(i) for i in range(ord("A"), ord("Z") + 1) if chr(i) not in equation]
        count = counts.pop() if len(counts) == 1 else -1
        return equation.replace("...", "".join(unused[:count])) if count >= 0 else equation

    def infer_outputs(self) -> Sequence[OutputShape]:
        left, _, result = self._equation.partition("->")
        sizes: dict[str, Dim] = {}
        for i, term in enumerate(left.split(",")):
            for letter, size in zip(term, self.input(i).shape, strict=False):
                length = sizes.setdefault(letter, size)
                message = f"axis {letter} must have one size, got {length} and {size}"
                require_equal(length, size, message)
        return [[sizes[letter] for letter in result]]

    def check(self) -> None:
        ranks = [t.rank for t in self.op.present]
        match = re.fullmatch(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)->([a-zA-Z]*)", self._equation)
        if match is None or [len(term) for term in match[1].split(",")] != ranks:
            raise OperatorError(
                f"its equation must have one term per input and one letter per axis, got "
                f"{self.options.get('equation')!r} for {len(ranks)} inputs"
            )
        if len(set(match[2])) < len(match[2]):
            raise OperatorError(
                f"the output of its equation must not repeat a letter, got {self._equation}"
            )

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        dtype = {DType.FLOAT16: DType.FLOAT32, DType.INT16: DType.INT32}.get(y.dtype, y.dtype)
        product = g.Einsum(*(g.recast(x, y.dtype, dtype) for x in xs), equation=self._equation)
        return g.recast(product, dtype, y.dtype)


class FlexL2Loss(Operator):
    """FlexL2Loss: half of the sum of squares."""

    codes = ("FlexL2Loss",)
    operands = "T:float32|float64|float16 -> T []"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axes = list(range(x.rank))
        total = g.reduce("ReduceSumSquare", x, axes, keepdims=False) if axes else g.Mul(x, x)
        return g.Mul(total, g.scalar(0.5, x.dtype))
