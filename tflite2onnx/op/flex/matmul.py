"""TensorFlow's matrix products, Einstein sums and L2 loss, in types that TFLite lacks."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.linear.matmul import product_shape
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.tensor import DType
from tflite2onnx.utils.dimension import Dim, require_equal

_TYPES = "float32|float64|float16|int16|int32|int64"


class FlexMatMul(AnySizes):
    """Matrix products in types that TFLite lacks, such as float64 and integers.

    Products of float16 are accumulated in float32.
    """

    codes = ("FlexBatchMatMul", "FlexBatchMatMulV2", "FlexBatchMatMulV3", "FlexMatMul")
    operands = f"T:{_TYPES}, T -> T"

    @property
    def _transposes(self) -> tuple[bool, bool]:
        """Whether each of the two inputs is transposed."""
        return bool(self.options.get("adj_x")), bool(self.options.get("adj_y"))

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [product_shape(self.input(0).shape, self.input(1).shape, self._transposes)]

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        wide = DType.INT32 if y.dtype is DType.INT16 else y.dtype
        a, b = (
            g.Transpose(x, perm=[*range(x.rank - 2), x.rank - 1, x.rank - 2])
            if transposes
            else x.value
            for x, transposes in zip(xs, self._transposes, strict=True)
        )
        return g.recast(g.MatMul(*(g.recast(x, y.dtype, wide) for x in (a, b))), wide, y.dtype)


class FlexEinsum(AnySizes):
    """FlexEinsum: Einstein sums; the equation has the same meaning in ONNX."""

    codes = ("FlexEinsum",)
    operands = f"T:{_TYPES}* -> T"

    @property
    def _equation(self) -> str:
        """The equation, with unused letters in place of an ellipsis."""
        equation = str(self.options.get("equation", ""))
        terms = equation.partition("->")[0].split(",")
        ranks = [self.input(i).rank for i in range(len(self.op.inputs))]
        counts = {
            rank - len(term) + 3 for rank, term in zip(ranks, terms, strict=False) if "..." in term
        }
        unused = [chr(i) for i in range(ord("A"), ord("Z") + 1) if chr(i) not in equation]
        count = counts.pop() if len(counts) == 1 else -1
        return equation.replace("...", "".join(unused[:count])) if count >= 0 else equation

    def infer_outputs(self) -> Sequence[OutputShape]:
        left, _, result = self._equation.partition("->")
        sizes: dict[str, Dim] = {}
        for i, term in enumerate(left.split(",")):
            for letter, size in zip(term, self.input(i).shape, strict=False):
                require_equal(sizes.setdefault(letter, size), size)
        return [[sizes[letter] for letter in result]]

    def check(self) -> None:
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        match = re.fullmatch(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)->([a-zA-Z]*)", self._equation)
        terms = match[1].split(",") if match else []
        if match is None or [len(term) for term in terms] != [t.rank for t in inputs]:
            raise OperatorError(
                f"its equation must have one term per input and one letter per axis, got "
                f"{self.options.get('equation')!r} for {len(inputs)} inputs"
            )
        if len(set(match[2])) < len(match[2]):
            raise OperatorError(
                f"the output of its equation must not repeat a letter, got {self._equation}"
            )
        sizes: dict[str, int] = {}
        for term, tensor in zip(terms, inputs, strict=True):
            for letter, size in zip(term, tensor.shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    raise OperatorError(
                        f"axis {letter} of {self._equation} must have one size, got "
                        f"{sizes[letter]} and {size}"
                    )

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        wide = {DType.FLOAT16: DType.FLOAT32, DType.INT16: DType.INT32}.get(y.dtype, y.dtype)
        product = g.Einsum(*(g.recast(x, y.dtype, wide) for x in xs), equation=self._equation)
        return g.recast(product, wide, y.dtype)


class FlexL2Loss(Operator):
    """FlexL2Loss: half of the sum of squares."""

    codes = ("FlexL2Loss",)
    operands = "T:float32|float64|float16 -> T []"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axes = list(range(x.rank))
        total = g.reduce("ReduceSumSquare", x, axes, keepdims=False) if axes else g.Mul(x, x)
        return g.Mul(total, g.scalar(0.5, x.dtype))
