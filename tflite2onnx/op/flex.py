"""TensorFlow's operators where TFLite has none that means the same: see `flex`.

They are exact where ONNX's nodes are: what TensorFlow computes in a type of its own, in particular
in double precision, is computed in that type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from tflite2onnx.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.comparison import comparison, not_equal
from tflite2onnx.op.elementwise import (
    Elementwise,
    Emit,
    Row,
    larger,
    node,
    nodes,
    reciprocal_root,
    smaller,
    square,
    squared_difference,
)
from tflite2onnx.op.parameters import expect, expect_type
from tflite2onnx.tensor import DType

_REAL = "float32 float64 float16"
_SIGNED = f"{_REAL} int8 int16 int32 int64"
_NUMBERS = f"{_SIGNED} uint8"
_COMPARED = "float32 float64 int32 int64"
_ORDERED = "float32 float64 float16 int32 int64 int8 uint8 int16"


def _one(emit: Callable[[Builder, DType, Operand], Value]) -> Emit:
    """Return what emits nodes that depend on the type of the one input."""
    return lambda g, dtype, _, x: emit(g, dtype, x)


def _expm1(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), which loses nothing near 0."""
    half, one = g.scalar(0.5, dtype), g.scalar(1, dtype)
    near = g.Mul(g.Tanh(g.Mul(x, half)), g.Add(g.Exp(x), one))
    # Far from 0 the difference is right as it is, and the product may be infinity times 1.
    far = g.Greater(g.Abs(x), one)
    return g.Where(far, g.Sub(g.Exp(x), one), near)


def _is_finite(g: Builder, x: Operand) -> Value:
    return g.Not(g.Or(g.IsInf(x), g.IsNaN(x)))


class FlexUnary(Elementwise):
    """One input of TensorFlow's."""

    custom = True
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexAbs": Row(node("Abs"), _NUMBERS, np.abs),
        "FlexAcos": Row(node("Acos"), "float32"),
        "FlexAcosh": Row(node("Acosh"), "float32"),
        "FlexAsin": Row(node("Asin"), "float32"),
        "FlexAsinh": Row(node("Asinh"), "float32"),
        "FlexAtan": Row(node("Atan"), "float32"),
        "FlexAtanh": Row(node("Atanh"), "float32"),
        "FlexCeil": Row(node("Ceil"), _REAL, np.ceil),
        "FlexCos": Row(node("Cos"), "float32 float64"),
        "FlexCosh": Row(node("Cosh"), "float32"),
        "FlexElu": Row(node("Elu"), "float32"),
        "FlexErf": Row(node("Erf"), "float32"),
        "FlexExp": Row(node("Exp"), _REAL),
        "FlexExpm1": Row(_one(_expm1), "float32 float64"),
        "FlexFloor": Row(node("Floor"), _REAL, np.floor),
        "FlexInv": Row(node("Reciprocal"), "float32 float64"),
        "FlexLog": Row(node("Log"), _REAL),
        "FlexLogicalNot": Row(nodes(lambda g, x: g.Not(x)), "bool", np.logical_not),
        "FlexNeg": Row(node("Neg"), _SIGNED, np.negative),
        "FlexReciprocal": Row(node("Reciprocal"), "float32 float64"),
        "FlexRelu": Row(node("Relu"), "float32 float64 int32"),
        "FlexRint": Row(node("Round"), "float32 float64", np.rint),
        "FlexRound": Row(node("Round"), "float32 float64", np.rint),
        "FlexRsqrt": Row(nodes(reciprocal_root), "float32 float64"),
        "FlexSelu": Row(
            nodes(
                lambda g, x: g.Selu(x, alpha=1.6732632423543772, gamma=1.0507009873554805)
            ),
            "float32",
        ),
        "FlexSigmoid": Row(node("Sigmoid"), "float32 float64"),
        "FlexSign": Row(node("Sign"), _SIGNED),
        "FlexSin": Row(node("Sin"), "float32 float64"),
        "FlexSinh": Row(node("Sinh"), "float32"),
        "FlexSoftplus": Row(node("Softplus"), "float32"),
        "FlexSoftsign": Row(node("Softsign"), "float32"),
        "FlexSqrt": Row(node("Sqrt"), _REAL, np.sqrt),
        "FlexSquare": Row(nodes(square), "float32 float64 int32 int64"),
        "FlexTan": Row(node("Tan"), "float32"),
        "FlexTanh": Row(node("Tanh"), "float32 float64"),
        # They stop gradients, of which there are none here.
        **dict.fromkeys(
            ("FlexIdentity", "FlexPreventGradient", "FlexSnapshot", "FlexStopGradient"),
            Row(node("Identity"), f"{_NUMBERS} bool", lambda x: x),
        ),
    }
    codes = tuple(rows)


class FlexCheck(Elementwise):
    """One input of TensorFlow's, about which something is true or not."""

    custom = True
    makes = DType.BOOL
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexIsFinite": Row(nodes(_is_finite), "float32 float64"),
        "FlexIsInf": Row(nodes(lambda g, x: g.IsInf(x)), "float32 float64", np.isinf),
        "FlexIsNan": Row(nodes(lambda g, x: g.IsNaN(x)), "float32 float64", np.isnan),
    }
    codes = tuple(rows)


def _no_nan(g: Builder, dtype: DType, _: Options, a: Operand, b: Operand) -> Value:
    nothing = g.Equal(b, g.scalar(0, dtype))
    return g.Where(nothing, g.scalar(0, dtype), g.Div(a, b))


class FlexBinary(Elementwise):
    """Two inputs of TensorFlow's that broadcast."""

    custom = True
    arity = 2
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexAdd": Row(node("Add"), _NUMBERS, np.add),
        "FlexAddV2": Row(node("Add"), _NUMBERS, np.add),
        "FlexDivNoNan": Row(_no_nan, "float32 float64"),
        "FlexLogicalAnd": Row(nodes(lambda g, a, b: g.And(a, b)), "bool", np.logical_and),
        "FlexLogicalOr": Row(nodes(lambda g, a, b: g.Or(a, b)), "bool", np.logical_or),
        "FlexMaximum": Row(node("Max"), _ORDERED, larger),
        "FlexMinimum": Row(node("Min"), _ORDERED, smaller),
        "FlexMul": Row(node("Mul"), _NUMBERS, np.multiply),
        "FlexPow": Row(node("Pow"), "float32 float64 int32 int64"),
        "FlexRealDiv": Row(node("Div"), _REAL),
        "FlexSquaredDifference": Row(nodes(squared_difference), "float32 float64 int32 int64"),
        "FlexSub": Row(node("Sub"), _NUMBERS, np.subtract),
    }
    codes = tuple(rows)


class FlexComparison(Elementwise):
    """Two inputs of TensorFlow's that are compared."""

    custom = True
    arity = 2
    makes = DType.BOOL
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexEqual": Row(comparison("Equal"), f"{_COMPARED} bool", np.equal),
        "FlexGreater": Row(comparison("Greater"), _COMPARED, np.greater),
        "FlexGreaterEqual": Row(comparison("GreaterOrEqual"), _COMPARED, np.greater_equal),
        "FlexLess": Row(comparison("Less"), _COMPARED, np.less),
        "FlexLessEqual": Row(comparison("LessOrEqual"), _COMPARED, np.less_equal),
        "FlexNotEqual": Row(not_equal, f"{_COMPARED} bool", np.not_equal),
    }
    codes = tuple(rows)


class FlexEinsum(Operator):
    """FlexEinsum: Einstein's sums, whose equation ONNX reads as TensorFlow does."""

    codes = ("FlexEinsum",)
    custom = True
    category = Category.TERMINATE

    @property
    def _equation(self) -> str:
        return str(self.options.get("equation", ""))

    def check(self) -> None:
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        for tensor in inputs:
            expect_type(tensor, (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64))
        match = re.fullmatch(r"([a-zA-Z]+(?:,[a-zA-Z]+)*)->([a-zA-Z]*)", self._equation)
        terms = match[1].split(",") if match else []
        if match is None or [len(term) for term in terms] != [t.rank for t in inputs]:
            message = f"its equation is {self._equation!r}, of {len(inputs)} inputs"
            raise OperatorError(message)
        sizes: dict[str, int] = {}
        for term, tensor in zip(terms, inputs, strict=True):
            for letter, size in zip(term, tensor.shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    message = f"axis {letter} of {self._equation} is {sizes[letter]} and {size}"
                    raise OperatorError(message)
        expect(self.output, [sizes[letter] for letter in match[2]], inputs[0].dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        return g.Einsum(*xs, equation=self._equation)


class FlexL2Loss(Operator):
    """FlexL2Loss: half the sum of all squares."""

    codes = ("FlexL2Loss",)
    custom = True
    category = Category.TERMINATE

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, (DType.FLOAT32, DType.FLOAT64))
        expect(self.output, (), x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axes = list(range(x.rank))
        total = g.reduce("ReduceSumSquare", x, axes, keepdims=False) if axes else g.Mul(x, x)
        return g.Mul(total, g.scalar(0.5, x.dtype))
