"""TensorFlow's elementwise operators without an equivalent in TFLite (see `passes.flex`).

They are as exact as ONNX's nodes. Each is computed in the type in which TensorFlow computes it, in
particular in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.elementwise.arithmetic import (
    AddN,
    Elementwise,
    ElementwiseRule,
    Emit,
    elementwise_maximum,
    elementwise_minimum,
    floor_mod,
    node,
    nodes,
    reciprocal_root,
    squared_difference,
)
from tflite2onnx.op.elementwise.comparison import comparison, not_equal
from tflite2onnx.tensor import DType

_REAL = "float32 float64 float16"
_PRECISE = "float32 float64"
_SIGNED_INTEGERS = "int8 int16 int32 int64"
_INTEGERS = f"{_SIGNED_INTEGERS} uint8 uint16 uint32 uint64"
_SIGNED = f"{_REAL} {_SIGNED_INTEGERS}"
_NUMBERS = f"{_REAL} {_INTEGERS}"
# Types for which ONNX Runtime has no Div kernel, and the wider type to divide in.
_WIDE = dict.fromkeys((DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.INT32)
_UNSIGNED = (DType.UINT32, DType.UINT64)


def _emit_unary(emit: Callable[[Builder, DType, Operand], Value]) -> Emit:
    """Return an emitter of one input that ignores the options."""
    return lambda g, dtype, _, x: emit(g, dtype, x)


def _emit_binary(emit: Callable[[Builder, DType, Operand, Operand], Value]) -> Emit:
    """Return an emitter of two inputs that ignores the options."""
    return lambda g, dtype, _, a, b: emit(g, dtype, a, b)


def _expm1(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), which is accurate near 0."""
    half, one = g.scalar(0.5, dtype), g.scalar(1, dtype)
    near = g.Mul(g.Tanh(g.Mul(x, half)), g.Add(g.Exp(x), one))
    # Far from 0 the difference is accurate, and the product may overflow.
    far = g.Greater(g.Abs(x), one)
    return g.Where(far, g.Sub(g.Exp(x), one), near)


def _log1p(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return log(1 + x) as x * log(u) / (u - 1), where u is 1 + x rounded."""
    one = g.scalar(1, dtype)
    u = g.Add(x, one)
    rest = g.Sub(u, one)
    near = g.Mul(x, g.Div(g.Log(u), rest))
    is_zero = g.Equal(rest, g.scalar(0, dtype))
    return g.Where(g.Or(is_zero, g.IsInf(u, detect_negative=0)), x, near)


def _tan(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Tan(x) if dtype is not DType.FLOAT64 else g.Div(g.Sin(x), g.Cos(x))


def _sinh(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return sinh(x); ONNX Runtime has no Sinh kernel for float64."""
    if dtype is not DType.FLOAT64:
        return g.Sinh(x)
    return g.Mul(g.Sub(_expm1(g, dtype, x), _expm1(g, dtype, g.Neg(x))), g.scalar(0.5, dtype))


def _cosh(g: Builder, dtype: DType, x: Operand) -> Value:
    if dtype is not DType.FLOAT64:
        return g.Cosh(x)
    return g.Mul(g.Add(g.Exp(x), g.Exp(g.Neg(x))), g.scalar(0.5, dtype))


def _elu(g: Builder, dtype: DType, x: Operand) -> Value:
    if dtype is not DType.FLOAT64:
        return g.Elu(x)
    return g.Where(g.Greater(x, g.scalar(0, dtype)), x, _expm1(g, dtype, x))


def _selu(g: Builder, dtype: DType, x: Operand) -> Value:
    alpha, gamma = 1.6732632423543772, 1.0507009873554805
    if dtype is not DType.FLOAT64:
        return g.Selu(x, alpha=alpha, gamma=gamma)
    low = g.Mul(_expm1(g, dtype, x), g.scalar(alpha, dtype))
    return g.Mul(g.Where(g.Greater(x, g.scalar(0, dtype)), x, low), g.scalar(gamma, dtype))


def _softplus(g: Builder, dtype: DType, x: Operand) -> Value:
    if dtype is not DType.FLOAT64:
        return g.Softplus(x)
    rest = _log1p(g, dtype, g.Exp(g.Neg(g.Abs(x))))
    return g.Add(g.Max(x, g.scalar(0, dtype)), rest)


def _softsign(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Div(x, g.Add(g.Abs(x), g.scalar(1, dtype)))


def _relu(g: Builder, dtype: DType, x: Operand) -> Value:
    if dtype.is_float:
        return g.Relu(x)
    return g.in_compute_type("Max", dtype, x, g.scalar(0, dtype))


def _relu6(g: Builder, dtype: DType, x: Operand) -> Value:
    positive = g.in_compute_type("Max", dtype, x, g.scalar(0, dtype))
    return g.in_compute_type("Min", dtype, positive, g.scalar(6, dtype))


def _emit_fill(number: int) -> Emit:
    """Return an emitter that fills the shape of the input with a number."""
    return lambda g, dtype, _, x: g.Expand(g.scalar(number, dtype), g.Shape(x))


def _is_finite(g: Builder, dtype: DType, x: Operand) -> Value:
    x = _cast_for_infinities(g, dtype, x)
    return g.Not(g.Or(g.IsInf(x), g.IsNaN(x)))


def _cast_for_infinities(g: Builder, dtype: DType, x: Operand) -> Operand:
    """Return x, exactly, in a type for which ONNX Runtime has IsInf and IsNaN kernels."""
    return g.cast(x, DType.FLOAT32) if dtype is DType.FLOAT16 else x


class FlexUnary(Elementwise):
    """TensorFlow's elementwise operators of one input."""

    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "FlexAbs": ElementwiseRule(node("Abs"), _SIGNED, np.abs),
        "FlexAcos": ElementwiseRule(node("Acos"), "float32 float16"),
        "FlexAcosh": ElementwiseRule(node("Acosh"), "float32 float16"),
        "FlexAsin": ElementwiseRule(node("Asin"), "float32 float16"),
        "FlexAsinh": ElementwiseRule(node("Asinh"), "float32 float16"),
        "FlexAtan": ElementwiseRule(node("Atan"), "float32 float16"),
        "FlexAtanh": ElementwiseRule(node("Atanh"), "float32 float16"),
        "FlexCeil": ElementwiseRule(node("Ceil"), _REAL, np.ceil),
        "FlexCos": ElementwiseRule(node("Cos"), _REAL),
        "FlexCosh": ElementwiseRule(_emit_unary(_cosh), _REAL),
        "FlexElu": ElementwiseRule(_emit_unary(_elu), _REAL),
        "FlexErf": ElementwiseRule(node("Erf"), "float32 float16"),
        "FlexExp": ElementwiseRule(node("Exp"), _REAL),
        "FlexExpm1": ElementwiseRule(_emit_unary(_expm1), _PRECISE),
        "FlexFloor": ElementwiseRule(node("Floor"), _REAL, np.floor),
        "FlexInv": ElementwiseRule(node("Reciprocal"), _REAL),
        "FlexLog": ElementwiseRule(node("Log"), _REAL),
        "FlexLog1p": ElementwiseRule(_emit_unary(_log1p), _PRECISE),
        "FlexLogicalNot": ElementwiseRule(nodes(lambda g, x: g.Not(x)), "bool", np.logical_not),
        "FlexNeg": ElementwiseRule(node("Neg"), _SIGNED, np.negative),
        "FlexOnesLike": ElementwiseRule(_emit_fill(1), f"{_NUMBERS} bool", np.ones_like),
        "FlexReciprocal": ElementwiseRule(node("Reciprocal"), _REAL),
        "FlexRelu": ElementwiseRule(_emit_unary(_relu), _NUMBERS),
        "FlexRelu6": ElementwiseRule(_emit_unary(_relu6), _NUMBERS),
        "FlexRint": ElementwiseRule(node("Round"), _REAL, np.rint),
        "FlexRound": ElementwiseRule(node("Round"), _REAL, np.rint),
        "FlexRsqrt": ElementwiseRule(nodes(reciprocal_root), _REAL),
        "FlexSelu": ElementwiseRule(_emit_unary(_selu), _REAL),
        "FlexSigmoid": ElementwiseRule(node("Sigmoid"), _REAL),
        "FlexSign": ElementwiseRule(node("Sign"), _SIGNED),
        "FlexSin": ElementwiseRule(node("Sin"), _REAL),
        "FlexSinh": ElementwiseRule(_emit_unary(_sinh), _REAL),
        "FlexSoftplus": ElementwiseRule(_emit_unary(_softplus), _REAL),
        "FlexSoftsign": ElementwiseRule(_emit_unary(_softsign), _REAL),
        "FlexSqrt": ElementwiseRule(node("Sqrt"), _REAL, np.sqrt),
        "FlexSquare": ElementwiseRule(
            lambda g, dtype, _, x: g.in_compute_type("Mul", dtype, x, x), _NUMBERS, np.square
        ),
        "FlexTan": ElementwiseRule(_emit_unary(_tan), _REAL),
        "FlexTanh": ElementwiseRule(node("Tanh"), _REAL),
        "FlexZerosLike": ElementwiseRule(_emit_fill(0), f"{_NUMBERS} bool", np.zeros_like),
        # Without gradients, and if their checks succeed, these return their input.
        **dict.fromkeys(
            (
                "FlexCheckNumerics",
                "FlexCheckNumericsV2",
                "FlexDeepCopy",
                "FlexEnsureShape",
                "FlexIdentity",
                "FlexPreventGradient",
                "FlexSnapshot",
                "FlexStopGradient",
            ),
            ElementwiseRule(node("Identity"), f"{_NUMBERS} bool string", lambda x: x),
        ),
    }


class FlexCheck(Elementwise):
    """TensorFlow's elementwise predicates of one input."""

    makes = DType.BOOL
    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "FlexIsFinite": ElementwiseRule(_emit_unary(_is_finite), _REAL),
        "FlexIsInf": ElementwiseRule(
            _emit_unary(lambda g, dtype, x: g.IsInf(_cast_for_infinities(g, dtype, x))),
            _REAL,
            np.isinf,
        ),
        "FlexIsNan": ElementwiseRule(
            _emit_unary(lambda g, dtype, x: g.IsNaN(_cast_for_infinities(g, dtype, x))),
            _REAL,
            np.isnan,
        ),
    }


def _guard_zero(of: int, emit: Callable[[Builder, DType, Operand, Operand], Value]) -> Emit:
    """Return an emitter whose result is 0 where the input with index `of` is 0."""

    def emit_guarded(g: Builder, dtype: DType, _: Options, *xs: Operand) -> Value:
        zero = g.scalar(0, dtype)
        return g.Where(g.Equal(xs[of], zero), zero, emit(g, dtype, *xs))

    return emit_guarded


def _floor_div(g: Builder, dtype: DType, _: Options, a: Operand, b: Operand) -> Value:
    if dtype.is_float:
        return g.Floor(g.Div(a, b))
    wide = _WIDE.get(dtype, dtype)
    a, b = (x if dtype is wide else g.cast(x, wide) for x in (a, b))
    quotient = g.Div(a, b)
    if dtype not in _UNSIGNED:
        # Div rounds towards 0, which is 1 too large if remainder and divisor differ in sign.
        zero, remainder = g.scalar(0, wide), g.Sub(a, g.Mul(quotient, b))
        rounded_up = g.And(
            g.Not(g.Equal(remainder, zero)), g.Xor(g.Less(remainder, zero), g.Less(b, zero))
        )
        quotient = g.Sub(quotient, g.cast(rounded_up, wide))
    return g.recast(quotient, wide, dtype)


def _truncate_quotient(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return the quotient rounded towards 0, as ONNX's Div of integers is."""
    if not dtype.is_float:
        return g.in_compute_type("Div", dtype, a, b)
    quotient = g.Div(a, b)
    return g.Mul(g.Sign(quotient), g.Floor(g.Abs(quotient)))


def _compute_truncated_mod(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return the remainder of a / b, with the sign of a."""
    if dtype in _UNSIGNED:
        return g.Mod(a, b)
    if dtype is DType.INT64:  # ONNX Runtime computes fmod in float64, which is not exact
        return g.Sub(a, g.Mul(g.Div(a, b), b))
    return g.Mod(a, b, fmod=1)


def _raise_to_power(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return a to the power of b.

    ONNX Runtime computes Pow of integers in float64, which is exact below 2 ** 53. For a constant
    exponent this emits products instead, which wrap around as in TensorFlow.
    """
    data = b.tensor.data if isinstance(b, View) else None
    number = int(data.item()) if data is not None and data.size == 1 else 0
    if dtype.is_float or not 0 < number < dtype.bits:
        return g.Pow(a, b)
    power = g.Identity(a)
    for bit in f"{number:b}"[1:]:
        power = g.Mul(power, power)
        power = g.Mul(power, a) if bit == "1" else power
    return power


def _compare_approximately(
    g: Builder, dtype: DType, options: Options, a: Operand, b: Operand
) -> Value:
    tolerance = g.scalar(options.get("tolerance", 1e-5), dtype)
    return g.Less(g.Abs(g.Sub(a, b)), tolerance)


class FlexBinary(Elementwise):
    """TensorFlow's elementwise operators of two inputs that broadcast."""

    arity = 2
    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "FlexAdd": ElementwiseRule(node("Add"), _NUMBERS, np.add),
        "FlexAddV2": ElementwiseRule(node("Add"), _NUMBERS, np.add),
        "FlexDiv": ElementwiseRule(node("Div"), _NUMBERS),
        "FlexDivNoNan": ElementwiseRule(_guard_zero(1, lambda g, _, a, b: g.Div(a, b)), _REAL),
        "FlexFloorDiv": ElementwiseRule(_floor_div, _NUMBERS),
        "FlexFloorMod": ElementwiseRule(floor_mod, _NUMBERS),
        "FlexLogicalAnd": ElementwiseRule(
            nodes(lambda g, a, b: g.And(a, b)), "bool", np.logical_and
        ),
        "FlexLogicalOr": ElementwiseRule(nodes(lambda g, a, b: g.Or(a, b)), "bool", np.logical_or),
        "FlexMaximum": ElementwiseRule(node("Max"), _NUMBERS, elementwise_maximum),
        "FlexMinimum": ElementwiseRule(node("Min"), _NUMBERS, elementwise_minimum),
        "FlexMod": ElementwiseRule(_emit_binary(_compute_truncated_mod), _NUMBERS),
        "FlexMul": ElementwiseRule(node("Mul"), _NUMBERS, np.multiply),
        "FlexMulNoNan": ElementwiseRule(_guard_zero(1, lambda g, _, a, b: g.Mul(a, b)), _REAL),
        "FlexPow": ElementwiseRule(_emit_binary(_raise_to_power), f"{_REAL} int32 int64"),
        "FlexRealDiv": ElementwiseRule(node("Div"), _REAL),
        "FlexSquaredDifference": ElementwiseRule(nodes(squared_difference), f"{_REAL} int32 int64"),
        "FlexSub": ElementwiseRule(node("Sub"), _NUMBERS, np.subtract),
        "FlexTruncateDiv": ElementwiseRule(_emit_binary(_truncate_quotient), _NUMBERS),
        "FlexTruncateMod": ElementwiseRule(_emit_binary(_compute_truncated_mod), _NUMBERS),
        "FlexXdivy": ElementwiseRule(_guard_zero(0, lambda g, _, a, b: g.Div(a, b)), _REAL),
        "FlexXlog1py": ElementwiseRule(
            _guard_zero(0, lambda g, dtype, a, b: g.Mul(a, _log1p(g, dtype, b))), _PRECISE
        ),
        "FlexXlogy": ElementwiseRule(_guard_zero(0, lambda g, _, a, b: g.Mul(a, g.Log(b))), _REAL),
    }


class FlexComparison(Elementwise):
    """TensorFlow's comparisons of two inputs that broadcast."""

    arity = 2
    makes = DType.BOOL
    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "FlexApproximateEqual": ElementwiseRule(_compare_approximately, _PRECISE),
        "FlexEqual": ElementwiseRule(comparison("Equal"), f"{_NUMBERS} bool string", np.equal),
        "FlexGreater": ElementwiseRule(comparison("Greater"), _NUMBERS, np.greater),
        "FlexGreaterEqual": ElementwiseRule(
            comparison("GreaterOrEqual"), _NUMBERS, np.greater_equal
        ),
        "FlexLess": ElementwiseRule(comparison("Less"), _NUMBERS, np.less),
        "FlexLessEqual": ElementwiseRule(comparison("LessOrEqual"), _NUMBERS, np.less_equal),
        "FlexNotEqual": ElementwiseRule(not_equal, f"{_NUMBERS} bool string", np.not_equal),
    }


class FlexSum(AddN):
    """FlexAddN: the sum of any number of inputs."""

    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "FlexAddN": ElementwiseRule(
            lambda g, dtype, _, *xs: reduce(lambda a, b: g.in_compute_type("Add", dtype, a, b), xs),
            _NUMBERS,
        ),
    }
