"""TensorFlow's elementwise operators without an equivalent in TFLite (see `contrib.flex`).

The results are as exact as ONNX's nodes. Each operator computes in the type in which TensorFlow
computes, in particular in double precision.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, TypeAlias

import numpy as np

from tflite2onnx.contrib.flex.names import spell_as_tflite
from tflite2onnx.operators import (
    Builder,
    DType,
    Elementwise,
    Emit,
    Integers,
    Operand,
    Options,
    Row,
    Value,
    View,
    emit_node,
    extend_row,
    split_words,
)

_REAL = "float32 float64 float16"
_PRECISE = "float32 float64"
_SIGNED_INTEGERS = "int8 int16 int32 int64"
_INTEGERS = f"{_SIGNED_INTEGERS} uint8 uint16 uint32 uint64"
_SIGNED = f"{_REAL} {_SIGNED_INTEGERS}"
_NUMBERS = f"{_REAL} {_INTEGERS}"
# Element types for which runtimes have no Div kernel, and the wider type in which the division is
# computed.
_WIDE = dict.fromkeys((DType.INT8, DType.INT16, DType.UINT8, DType.UINT16), DType.INT32)
_UNSIGNED = (DType.UINT32, DType.UINT64)
# Operators with an ONNX node of the same name: nodes without a float64 kernel, then nodes with one.
_OF_SINGLE, _OF_DOUBLE = (
    "Acos Acosh Asin Asinh Atan Atanh Erf",
    "Cos Exp Log Reciprocal Sigmoid Sin Tanh",
)
_COPIES = (
    "CheckNumerics CheckNumericsV2 DeepCopy EnsureShape Identity PreventGradient Snapshot "
    "StopGradient"
)
_SELU = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}

Unary: TypeAlias = Callable[[Builder, DType, Operand], Value]
Binary: TypeAlias = Callable[[Builder, DType, Operand, Operand], Value]
_BITS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64"
_UNSIGNED_TYPES = (DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64)
_ONES = np.array([i.bit_count() for i in range(256)], np.int64)


def _extend_rows(names: str, types: str) -> dict[str, Row]:
    """Return the rows of operators that compute what TFLite's do, for other types."""
    return {f"Flex{name}": extend_row(spell_as_tflite(name), types) for name in names.split()}


def _without_options(emit: Callable[..., Value]) -> Emit:
    """Return an emitter that ignores the options, from a function of (builder, type, *inputs)."""
    return lambda g, dtype, _, *xs: emit(g, dtype, *xs)


def _emit_expm1(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return exp(x) - 1 as tanh(x / 2) * (exp(x) + 1), which is accurate near 0."""
    half, one = g.scalar(0.5, dtype), g.scalar(1, dtype)
    product = g.Mul(g.Tanh(g.Mul(x, half)), g.Add(g.Exp(x), one))
    # Far from 0 the difference is accurate, and a product may overflow.
    is_far = g.Greater(g.Abs(x), one)
    return g.Where(is_far, g.Sub(g.Exp(x), one), product)


def _emit_log1p(g: Builder, dtype: DType, x: Operand) -> Value:
    """Return log(1 + x) as x * log(u) / (u - 1), where u is 1 + x rounded."""
    one = g.scalar(1, dtype)
    u = g.Add(x, one)
    difference = g.Sub(u, one)
    product = g.Mul(x, g.Div(g.Log(u), difference))
    is_zero = g.Equal(difference, g.scalar(0, dtype))
    return g.Where(g.Or(is_zero, g.IsInf(u, detect_negative=0)), x, product)


def _emit_node_but_double(op_type: str, emit: Unary, **attributes: float) -> Unary:
    """Return an emitter of a node, or of other nodes for float64, which lacks a kernel."""

    def choose_form(g: Builder, dtype: DType, x: Operand) -> Value:
        return emit(g, dtype, x) if dtype is DType.FLOAT64 else g.node(op_type, x, **attributes)

    return choose_form


def _emit_tan(g: Builder, _: DType, x: Operand) -> Value:
    return g.Div(g.Sin(x), g.Cos(x))


def _emit_sinh(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Mul(
        g.Sub(_emit_expm1(g, dtype, x), _emit_expm1(g, dtype, g.Neg(x))), g.scalar(0.5, dtype)
    )


def _emit_cosh(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Mul(g.Add(g.Exp(x), g.Exp(g.Neg(x))), g.scalar(0.5, dtype))


def _emit_elu(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Where(g.Greater(x, g.scalar(0, dtype)), x, _emit_expm1(g, dtype, x))


def _emit_selu(g: Builder, dtype: DType, x: Operand) -> Value:
    low = g.Mul(_emit_expm1(g, dtype, x), g.scalar(_SELU["alpha"], dtype))
    return g.Mul(g.Where(g.Greater(x, g.scalar(0, dtype)), x, low), g.scalar(_SELU["gamma"], dtype))


def _emit_softplus(g: Builder, dtype: DType, x: Operand) -> Value:
    rest = _emit_log1p(g, dtype, g.Exp(g.Neg(g.Abs(x))))
    return g.Add(g.Max(x, g.scalar(0, dtype)), rest)


def _emit_softsign(g: Builder, dtype: DType, x: Operand) -> Value:
    return g.Div(x, g.Add(g.Abs(x), g.scalar(1, dtype)))


def _emit_relu(g: Builder, dtype: DType, x: Operand) -> Value:
    if dtype.is_float:
        return g.Relu(x)
    return g.add_with_casts("Max", dtype, x, g.scalar(0, dtype))


def _emit_relu6(g: Builder, dtype: DType, x: Operand) -> Value:
    positive = g.add_with_casts("Max", dtype, x, g.scalar(0, dtype))
    return g.add_with_casts("Min", dtype, positive, g.scalar(6, dtype))


def _fill_with_ones(g: Builder, dtype: DType, _: Options, x: Operand) -> Value:
    return g.Expand(g.scalar(1, dtype), g.Shape(x))


def _is_finite(g: Builder, dtype: DType, x: Operand) -> Value:
    x = _cast_for_infinities(g, dtype, x)
    return g.Not(g.Or(g.IsInf(x), g.IsNaN(x)))


def _cast_for_infinities(g: Builder, dtype: DType, x: Operand) -> Operand:
    """Return x, exactly, in a type for which runtimes have IsInf and IsNaN kernels."""
    return g.cast(x, DType.FLOAT32) if dtype is DType.FLOAT16 else x


def _emit_element_test(op_type: str) -> Emit:
    """Return an emitter of a test for infinities or for NaN."""
    return lambda g, dtype, _, x: g.node(op_type, _cast_for_infinities(g, dtype, x))


class FlexUnary(Elementwise):
    """TensorFlow's elementwise operators of one input."""

    rows: ClassVar[Mapping[str, Row]] = {
        **{f"Flex{name}": Row(emit_node(name), "float32 float16") for name in _OF_SINGLE.split()},
        **{f"Flex{name}": Row(emit_node(name), _REAL) for name in _OF_DOUBLE.split()},
        **_extend_rows("Ceil Floor Round Rsqrt Sqrt", _REAL),
        **_extend_rows("Abs Neg Sign", _SIGNED),
        **_extend_rows("LogicalNot", "bool"),
        "FlexRint": extend_row("ROUND", _REAL),
        "FlexCosh": Row(_without_options(_emit_node_but_double("Cosh", _emit_cosh)), _REAL),
        "FlexElu": Row(_without_options(_emit_node_but_double("Elu", _emit_elu)), _REAL),
        "FlexExpm1": Row(_without_options(_emit_expm1), _PRECISE),
        "FlexInv": Row(emit_node("Reciprocal"), _REAL),
        "FlexLog1p": Row(_without_options(_emit_log1p), _PRECISE),
        "FlexOnesLike": Row(_fill_with_ones, f"{_NUMBERS} bool", np.ones_like),
        "FlexRelu": Row(_without_options(_emit_relu), _NUMBERS),
        "FlexRelu6": Row(_without_options(_emit_relu6), _NUMBERS),
        "FlexSelu": Row(
            _without_options(_emit_node_but_double("Selu", _emit_selu, **_SELU)), _REAL
        ),
        "FlexSinh": Row(_without_options(_emit_node_but_double("Sinh", _emit_sinh)), _REAL),
        "FlexSoftplus": Row(
            _without_options(_emit_node_but_double("Softplus", _emit_softplus)), _REAL
        ),
        "FlexSoftsign": Row(_without_options(_emit_softsign), _REAL),
        "FlexSquare": Row(
            lambda g, dtype, _, x: g.add_with_casts("Mul", dtype, x, x), _NUMBERS, np.square
        ),
        "FlexTan": Row(_without_options(_emit_node_but_double("Tan", _emit_tan)), _REAL),
        # These operators return their input if their checks succeed: there are no gradients in
        # inference.
        **{
            f"Flex{name}": Row(emit_node("Identity"), f"{_NUMBERS} bool string", lambda x: x)
            for name in _COPIES.split()
        },
    }


class FlexCheck(Elementwise):
    """TensorFlow's elementwise predicates of one input."""

    makes = DType.BOOL
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexIsFinite": Row(_without_options(_is_finite), _REAL),
        "FlexIsInf": Row(_emit_element_test("IsInf"), _REAL, np.isinf),
        "FlexIsNan": Row(_emit_element_test("IsNaN"), _REAL, np.isnan),
    }


def _guard_zero(index: int, emit: Binary) -> Emit:
    """Return an emitter whose result is 0 where the input with this index is 0."""

    def emit_guarded(g: Builder, dtype: DType, _: Options, *xs: Operand) -> Value:
        zero = g.scalar(0, dtype)
        return g.Where(g.Equal(xs[index], zero), zero, emit(g, dtype, *xs))

    return emit_guarded


def _emit_floor_div(g: Builder, dtype: DType, _: Options, a: Operand, b: Operand) -> Value:
    if dtype.is_float:
        return g.Floor(g.Div(a, b))
    type_of_node = _WIDE.get(dtype, dtype)
    a, b = (x if dtype is type_of_node else g.cast(x, type_of_node) for x in (a, b))
    quotient = g.Div(a, b)
    if dtype not in _UNSIGNED:
        # Div rounds towards 0: the quotient is 1 too large if remainder and divisor have different
        # signs.
        zero, remainder = g.scalar(0, type_of_node), g.Sub(a, g.Mul(quotient, b))
        rounded_up = g.And(
            g.Not(g.Equal(remainder, zero)), g.Xor(g.Less(remainder, zero), g.Less(b, zero))
        )
        quotient = g.Sub(quotient, g.cast(rounded_up, type_of_node))
    return g.recast(quotient, type_of_node, dtype)


def _truncate_quotient(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return the quotient rounded towards 0, like ONNX's Div of integers."""
    if not dtype.is_float:
        return g.add_with_casts("Div", dtype, a, b)
    quotient = g.Div(a, b)
    return g.Mul(g.Sign(quotient), g.Floor(g.Abs(quotient)))


def _compute_truncated_mod(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return the remainder of a / b, with the sign of a."""
    if dtype in _UNSIGNED:
        return g.Mod(a, b)
    if dtype is DType.INT64:  # runtimes compute fmod of int64 in float64, which is not exact
        return g.Sub(a, g.Mul(g.Div(a, b), b))
    return g.Mod(a, b, fmod=1)


def _raise_to_power(g: Builder, dtype: DType, a: Operand, b: Operand) -> Value:
    """Return a to the power of b.

    Runtimes compute Pow of integers in float64, which is exact below 2 ** 53. For a constant
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
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexAdd": Row(emit_node("Add"), _NUMBERS, np.add),
        "FlexAddV2": Row(emit_node("Add"), _NUMBERS, np.add),
        "FlexDiv": Row(emit_node("Div"), _NUMBERS),
        "FlexDivNoNan": Row(_guard_zero(1, lambda g, _, a, b: g.Div(a, b)), _REAL),
        "FlexFloorDiv": Row(_emit_floor_div, _NUMBERS),
        "FlexMod": Row(_without_options(_compute_truncated_mod), _NUMBERS),
        "FlexMulNoNan": Row(_guard_zero(1, lambda g, _, a, b: g.Mul(a, b)), _REAL),
        "FlexPow": Row(_without_options(_raise_to_power), f"{_REAL} int32 int64"),
        "FlexRealDiv": Row(emit_node("Div"), _REAL),
        **_extend_rows("FloorMod Maximum Minimum Mul", _NUMBERS),
        **_extend_rows("LogicalAnd LogicalOr", "bool"),
        **_extend_rows("SquaredDifference", f"{_REAL} int32 int64"),
        "FlexSub": Row(emit_node("Sub"), _NUMBERS, np.subtract),
        "FlexTruncateDiv": Row(_without_options(_truncate_quotient), _NUMBERS),
        "FlexTruncateMod": Row(_without_options(_compute_truncated_mod), _NUMBERS),
        "FlexXdivy": Row(_guard_zero(0, lambda g, _, a, b: g.Div(a, b)), _REAL),
        "FlexXlog1py": Row(
            _guard_zero(0, lambda g, dtype, a, b: g.Mul(a, _emit_log1p(g, dtype, b))), _PRECISE
        ),
        "FlexXlogy": Row(_guard_zero(0, lambda g, _, a, b: g.Mul(a, g.Log(b))), _REAL),
    }


class FlexComparison(Elementwise):
    """TensorFlow's comparisons of two inputs that broadcast."""

    arity = 2
    makes = DType.BOOL
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexApproximateEqual": Row(_compare_approximately, _PRECISE),
        **_extend_rows("Greater GreaterEqual Less LessEqual", _NUMBERS),
        **_extend_rows("Equal NotEqual", f"{_NUMBERS} bool string"),
    }


def _clip_shift_count(g: Builder, dtype: DType, count: Operand) -> Value:
    """Return the shift counts, uint64, clipped to the bits of the type as in TensorFlow."""
    low, high = (g.scalar(number, dtype) for number in (0, dtype.bits - 1))
    bounded = g.add_with_casts("Min", dtype, g.add_with_casts("Max", dtype, count, low), high)
    return g.cast(bounded, DType.UINT64)


def _shift_left(g: Builder, dtype: DType, _: Options, x: Operand, count: Operand) -> Value:
    # ONNX shifts unsigned integers only. The final cast drops the bits that do not fit into the
    # type.
    bits, places = g.cast(x, DType.UINT64), _clip_shift_count(g, dtype, count)
    return g.cast(g.BitShift(bits, places, direction="LEFT"), dtype)


def _shift_right(g: Builder, dtype: DType, _: Options, x: Operand, count: Operand) -> Value:
    places = _clip_shift_count(g, dtype, count)
    if dtype in _UNSIGNED_TYPES:
        return g.cast(g.BitShift(g.cast(x, DType.UINT64), places, direction="RIGHT"), dtype)
    # For a negative number, the shift applies to its complement, and the result is the complement
    # again.
    number = g.cast(x, DType.INT64)
    negative = g.Less(number, 0)
    bits = g.cast(g.Where(negative, g.Sub(-1, number), number), DType.UINT64)
    shifted = g.cast(g.BitShift(bits, places, direction="RIGHT"), DType.INT64)
    return g.cast(g.Where(negative, g.Sub(-1, shifted), shifted), dtype)


class FlexBits(Elementwise):
    """Bitwise operators and shifts of two integer tensors that broadcast."""

    quantization = Integers(in_file_types=True)
    arity = 2
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexBitwiseAnd": Row(emit_node("BitwiseAnd"), _BITS, np.bitwise_and),
        "FlexBitwiseOr": Row(emit_node("BitwiseOr"), _BITS, np.bitwise_or),
        "FlexBitwiseXor": Row(emit_node("BitwiseXor"), _BITS, np.bitwise_xor),
        "FlexLeftShift": Row(_shift_left, _BITS),
        "FlexRightShift": Row(_shift_right, _BITS),
    }


class FlexInvert(Elementwise):
    """FlexInvert: the complement of each bit."""

    quantization = Integers(in_file_types=True)
    rows: ClassVar[Mapping[str, Row]] = {
        "FlexInvert": Row(emit_node("BitwiseNot"), _BITS, np.invert)
    }


class FlexPopulationCount(Elementwise):
    """FlexPopulationCount: the number of set bits."""

    quantization = Integers(in_file_types=True)
    makes = DType.UINT8
    rows: ClassVar[Mapping[str, Row]] = {"FlexPopulationCount": Row(emit_node("Identity"), _BITS)}

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        octets = split_words(g, xs[0].value, xs[0].dtype, DType.UINT8.bits)
        ones = g.Gather(g.constant(_ONES), g.cast(octets, DType.INT64))
        return g.cast(g.reduce("ReduceSum", ones, [xs[0].rank], keepdims=False), DType.UINT8)
