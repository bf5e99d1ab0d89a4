"""TensorFlow's sums of products in types that TFLite has none of: matrices, Einstein's sums."""

from __future__ import annotations

import re

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.op.linear.matmul import product_shape
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType

_TYPES = (
    DType.FLOAT32,
    DType.FLOAT64,
    DType.FLOAT16,
    DType.INT16,
    DType.INT32,
    DType.INT64,
)


class FlexMatMul(DynamicShape):
    """Products of matrices that TFLite has not: of float64, say, or of integers.

    Those of float16 are added up as float32.
    """

    codes = ("FlexBatchMatMul", "FlexBatchMatMulV2", "FlexBatchMatMulV3", "FlexMatMul")
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    @property
    def _transposes(self) -> tuple[bool, bool]:
        """Which of the two is transposed."""
        return bool(self.options.get("adj_x")), bool(self.options.get("adj_y"))

    def check(self) -> None:
        a, b = self.input(0), self.input(1)
        expect_type(a, _TYPES)
        expect(b, b.shape, a.dtype)
        expect(self.output, product_shape(a.shape, b.shape, self._transposes), a.dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        kind = DType.INT32 if y.dtype is DType.INT16 else y.dtype
        a, b = (
            g.Transpose(x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2]) if turn else x.value
            for x, turn in zip(xs, self._transposes, strict=True)
        )
        return g.recast(g.MatMul(*(g.recast(x, y.dtype, kind) for x in (a, b))), kind, y.dtype)


class FlexEinsum(DynamicShape):
    """FlexEinsum: Einstein's sums, whose equation ONNX reads as TensorFlow does."""

    codes = ("FlexEinsum",)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    @property
    def _equation(self) -> str:
        """The equation, with a letter for each axis that an ellipsis stands for."""
        given = str(self.options.get("equation", ""))
        terms = given.partition("->")[0].split(",")
        ranks = [self.input(i).rank for i in range(len(self.op.inputs))]
        counts = {
            rank - len(term) + 3 for rank, term in zip(ranks, terms, strict=False) if "..." in term
        }
        unused = [chr(i) for i in range(ord("A"), ord("Z") + 1) if chr(i) not in given]
        count = counts.pop() if len(counts) == 1 else -1
        return given.replace("...", "".join(unused[:count])) if count >= 0 else given

    def check(self) -> None:
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        for tensor in inputs:
            expect_type(tensor, _TYPES)
        match = re.fullmatch(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)->([a-zA-Z]*)", self._equation)
        terms = match[1].split(",") if match else []
        if match is None or [len(term) for term in terms] != [t.rank for t in inputs]:
            raise OperatorError(
                f"its equation is {self.options.get('equation')!r}, of {len(inputs)} inputs"
            )
        if len(set(match[2])) < len(match[2]):
            raise OperatorError(f"{self._equation} makes an axis twice")
        sizes: dict[str, int] = {}
        for term, tensor in zip(terms, inputs, strict=True):
            for letter, size in zip(term, tensor.shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    raise OperatorError(
                        f"axis {letter} of {self._equation} is {sizes[letter]} and {size}"
                    )
        expect(self.output, [sizes[letter] for letter in match[2]], inputs[0].dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        kind = {DType.FLOAT16: DType.FLOAT32, DType.INT16: DType.INT32}.get(y.dtype, y.dtype)
        made = g.Einsum(*(g.recast(x, y.dtype, kind) for x in xs), equation=self._equation)
        return g.recast(made, kind, y.dtype)


class FlexL2Loss(Operator):
    """FlexL2Loss: half the sum of all squares."""

    codes = ("FlexL2Loss",)
    custom = True
    category = Category.TERMINATE

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16))
        expect(self.output, (), x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axes = list(range(x.rank))
        total = g.reduce("ReduceSumSquare", x, axes, keepdims=False) if axes else g.Mul(x, x)
        return g.Mul(total, g.scalar(0.5, x.dtype))
