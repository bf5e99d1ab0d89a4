"""TensorFlow's elementwise operators. LiteRT has no kernels for them, so numpy is the reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.contrib.flex.elementwise import (
    FlexBinary,
    FlexCheck,
    FlexComparison,
    FlexUnary,
)
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.runtimes import Array

_erf = np.vectorize(math.erf)
UNARY: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("CheckNumerics", "CheckNumericsV2", "DeepCopy", "EnsureShape"), np.copy),
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Erf": _erf,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Floor": np.floor,
    "Identity": np.copy,
    "Inv": np.reciprocal,
    "Log": np.log,
    "Log1p": np.log1p,
    "LogicalNot": np.logical_not,
    "Neg": np.negative,
    "OnesLike": np.ones_like,
    "ZerosLike": np.zeros_like,
    "Relu6": lambda x: np.clip(x, 0, 6),
    "PreventGradient": np.copy,
    "Reciprocal": np.reciprocal,
    "Relu": lambda x: np.maximum(x, 0),
    "Rint": np.rint,
    "Round": np.rint,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Selu": lambda x: 1.05070098735548 * np.where(x > 0, x, 1.67326324235437 * np.expm1(x)),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Snapshot": np.copy,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Square": np.square,
    "StopGradient": np.copy,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "IsFinite": np.isfinite,
    "IsInf": np.isinf,
    "IsNan": np.isnan,
}


def divide(a: Array, b: Array) -> Array:
    return np.asarray(a / b if a.dtype.kind == "f" else np.trunc(a / b).astype(a.dtype))


BINARY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "DivNoNan": lambda a, b: np.divide(
        a, b, out=np.zeros(np.broadcast(a, b).shape, a.dtype), where=b != 0
    ),
    "ApproximateEqual": lambda a, b: np.abs(a - b) < 0.5,
    "Div": divide,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Mod": np.fmod,
    "TruncateDiv": lambda a, b: np.trunc(divide(a, b)),
    "TruncateMod": np.fmod,
    "MulNoNan": lambda a, b: np.where(b == 0, 0, a * b),
    "Xdivy": lambda a, b: np.where(a == 0, 0, a / b),
    "Xlog1py": lambda a, b: np.where(a == 0, 0, a * np.log1p(b)),
    "Xlogy": lambda a, b: np.where(a == 0, 0, a * np.log(b)),
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Pow": np.power,
    "RealDiv": np.divide,
    "SquaredDifference": lambda a, b: np.square(a - b),
    "Sub": np.subtract,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
    "LessEqual": np.less_equal,
}
# ZEROS_LIKE, which has the types of OnesLike.
ZEROS = {"FlexZerosLike": FlexUnary.rows["FlexOnesLike"]}
ROWS = {**ZEROS, **FlexUnary.rows, **FlexCheck.rows, **FlexBinary.rows, **FlexComparison.rows}
NOT_BY_0 = {"RealDiv", "Div", "FloorDiv", "FloorMod", "Mod", "TruncateDiv", "TruncateMod"}
LOW = {
    "Acosh": 1,
    "Log": 0.1,
    "Log1p": -0.9,
    "Inv": 0.5,
    "Reciprocal": 0.5,
    "Tan": -1,
    "Rsqrt": 0.1,
    "Sqrt": 0,
    "Pow": 0.1,
    "Acos": -1,
    "Asin": -1,
    "Atanh": -0.95,
}
HIGH = {"Tan": 1, "Acos": 1, "Asin": 1, "Atanh": 0.95}


def operand(name: str, dtype: str, shape: tuple[int, ...], seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        low = 0 if dtype[0] == "u" or name == "Pow" else -5
        return generator.integers(low, 6, shape).astype(dtype)
    values = generator.uniform(LOW.get(name, -5), HIGH.get(name, 5), shape).astype(dtype)
    if name in {"IsFinite", "IsInf", "IsNan"}:
        values.flat[::7], values.flat[1::7], values.flat[2::7] = np.inf, -np.inf, np.nan
    if name in {"Round", "Rint", "DivNoNan", "Equal", "NotEqual", "LessEqual"}:
        values = np.round(values * 2) / 2
    return np.asarray(values)


def pair(name: str, dtype: str, *shapes: tuple[int, ...], seed: int = 0) -> tuple[Array, Array]:
    """Return two operands in the domain of the function."""
    a, b = (operand(name, dtype, shape, seed + i) for i, shape in enumerate(shapes))
    if name in NOT_BY_0:
        b = np.asarray((np.abs(b) + 1).astype(dtype))
        if dtype[0] != "u":
            b.flat[1::3] *= -1
    if name.startswith("X"):
        a.flat[::7], b = 0, np.abs(b)
    return a, np.asarray(b)


def cases(names: Any) -> list[tuple[str, str]]:
    return [
        (name, dtype)
        for name in names
        for dtype in ROWS[f"Flex{name}"].types.split()
        if dtype != "string"
    ]


def model(name: str, inputs: list[Array], made: Array) -> Build:
    m = Build()
    operands = [m.input(x.shape, dtype=x.dtype.name) for x in inputs]
    outputs = [m.tensor(made.shape, dtype=made.dtype.name)]
    told = {"tolerance": 0.5} if name == "ApproximateEqual" else {}
    m.output(*m.custom(f"Flex{name}", operands, outputs, flex_options(name, **told)))
    return m


@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
def test_unary_operators_equal_numpy(name: str, dtype: str) -> None:
    x = operand(name, dtype, (2, 3, 5, 7), 0)
    want = np.asarray(UNARY[name](x)).astype("bool" if "Flex" + name in FlexCheck.rows else dtype)
    bound = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 1e-5)
    check_reference(model(name, [x], want), [x], [want], tolerance=bound)


@pytest.mark.parametrize(("name", "dtype"), cases(BINARY))
def test_binary_operators_equal_numpy(name: str, dtype: str) -> None:
    a, b = pair(name, dtype, (2, 3, 5, 7), (5, 1))
    want = np.asarray(BINARY[name](a, b))
    want = want.astype("bool" if "Flex" + name in FlexComparison.rows else dtype)
    bound = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 1e-5)
    check_reference(model(name, [a, b], want), [a, b], [want], tolerance=bound)


@pytest.mark.parametrize("dtype", FlexBinary.rows["FlexAddV2"].types.split())
def test_add_n_equals_numpy(dtype: str) -> None:
    inputs = [operand("", dtype, (3, 5), i) for i in range(3)]
    want = np.asarray(sum(inputs), dtype)
    bound = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 1e-5)
    check_reference(model("AddN", inputs, want), inputs, [want], tolerance=bound)


def test_every_operator_of_the_tables_is_tried() -> None:
    assert {f"Flex{name}" for name in (*UNARY, *BINARY)} == set(ROWS)


def test_types_that_older_opsets_lack_are_cast_or_refused() -> None:
    a, b = pair("Div", "int8", (3, 5), (5,))
    check_reference(
        model("Div", [a, b], divide(a, b)), [a, b], [divide(a, b)], tolerance=0, opset=13
    )
    data = model("LeakyRelu", [np.zeros(3)], np.zeros(3)).bytes()
    with pytest.raises(ConversionError, match=r"LeakyRelu of float64, .* needs opset 16"):
        convert(data, opset=15)


def test_expm1_is_accurate_near_0() -> None:
    x = np.array([1e-9, -1e-7, 0, 1e-3, 90, -90], np.float32)
    with np.errstate(over="ignore"):  # exp(90) overflows, as expected
        want = np.expm1(x)
    made = convert(model("Expm1", [x], want).bytes())
    (y,) = run_onnx(made.model, {made.inputs[0].name: x})
    np.testing.assert_allclose(y, want, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
@pytest.mark.parametrize("name", ["Mod", "TruncateMod"])
def test_modulo_of_large_integers_is_exact(name: str, dtype: str) -> None:
    """Mod is exact for integers that float64 cannot represent."""
    most = np.iinfo(dtype).max
    a, b = np.array([most, most, most - 2], dtype), np.array([2, most - 1, 7], dtype)
    a, b = (a, b) if dtype[0] == "u" else (np.concatenate([a, -a]), np.concatenate([-b, b]))
    want = np.fmod(a, b)
    check_reference(model(name, [a, b], want), [a, b], [want])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 13, 30])
def test_powers_of_integers_wrap_around(exponent: int, dtype: str) -> None:
    """Integer powers wrap around."""
    a = np.array([0, 1, -1, 3, -7, 123457, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    b = np.array(exponent, dtype)
    want = np.power(a, b)
    check_reference(build_flex("Pow", [a], [want], [b]), [a], [want])


def test_log1p_of_infinities_equals_numpy() -> None:
    x = np.array([np.inf, -np.inf, -1, 0, np.nan], np.float32)
    want = np.array([np.inf, np.nan, -np.inf, 0, np.nan], np.float32)
    check_reference(model("Log1p", [x], want), [x], [want])
