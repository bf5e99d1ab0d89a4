"""Arithmetic, comparisons and logic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.op.ports import refusal_reason
from tests.support import Build, check, run_onnx
from tests.support.facts import carrier
from tflite2onnx.convert import convert
from tflite2onnx.errors import OptionError
from tflite2onnx.op.elementwise.arithmetic import (
    Absolute,
    AddN,
    Binary,
    Extreme,
    Negation,
    OfIntegers,
    SquaredDifference,
    Sum,
    Unary,
    Unbounded,
)
from tflite2onnx.op.elementwise.comparison import Comparison

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support import Converted, Tensor
    from tflite2onnx.op.elementwise.arithmetic import Row

Array = np.ndarray[Any, Any]
Ranges = dict[str, tuple[float, float]]

SHAPE = (2, 3, 5, 7)
OF_ONE = {**Absolute.rows, **Unary.rows, **Unbounded.rows, **Negation.rows}
NUMBERS_OF_TWO = {
    **Binary.rows,
    **Sum.rows,
    **Extreme.rows,
    **OfIntegers.rows,
    **SquaredDifference.rows,
}
OF_TWO = {**NUMBERS_OF_TWO, **Comparison.rows}
ARITHMETIC = ("ADD", "SUB", "MUL", "DIV")
FUSED = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")
# Ranges of the operands a and b of operators that are not defined for all numbers.
RANGES: dict[str, Ranges] = {
    "DIV": {"b": (1, 8)},
    "FLOOR_DIV": {"b": (1, 8)},
    "FLOOR_MOD": {"b": (1, 8)},
    "LOG": {"a": (0.01, 8)},
    "POW": {"a": (0.1, 4), "b": (0, 4)},
    "RSQRT": {"a": (0.01, 8)},
    "SQRT": {"a": (0, 8)},
}
COMPARED = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
}
# In float16 LiteRT and ONNX Runtime round at different steps.
INEXACT = {"COS": 1e-3, "SIN": 1e-3}
# LiteRT accepts these cases but does not write the output, or ends the process.
UNWRITTEN = {
    ("NOT_EQUAL", "int16"),
    *((code, dtype) for code in Comparison.codes for dtype in ("int8", "uint8")),
}


def list_lines(table: Mapping[str, Row]) -> list[tuple[str, str]]:
    """Return each operator of a table with each of its types."""
    pairs = [(code, dtype) for code, row in table.items() for dtype in row.types.split()]
    return [pair for pair in pairs if pair not in UNWRITTEN]


def add_input(m: Build, shape: Sequence[int], dtype: str, name: str = "a") -> Tensor:
    """Return an input; bfloat16, which NumPy lacks, is cast from float32."""
    if dtype != "bfloat16":
        return m.input(shape, dtype=dtype, name=name)
    return m.op("CAST", [m.input(shape, name=name)], [shape], dtype=dtype)[0]


def apply(
    m: Build, code: str, inputs: Sequence[Tensor], shape: Sequence[int], **options: Any
) -> None:
    """Make the outputs of an operator outputs of the model; bfloat16 is cast to float32."""
    dtype = "bool" if code in Comparison.codes else None
    (y,) = m.op(code, inputs, [shape], dtype=dtype, **options)
    if y.dtype == "bfloat16":
        (y,) = m.op("CAST", [y], [shape], dtype="float32")
    m.output(y)


def tolerance(code: str, dtype: str) -> float:
    return INEXACT.get(code, 1e-5) if dtype == "float16" else 1e-5


def check_on(code: str, *arrays: Array, **options: Any) -> Converted:
    """Compare an operator with LiteRT on given inputs."""
    m = Build()
    inputs = [m.input(a.shape, dtype=a.dtype) for a in arrays]
    apply(m, code, inputs, np.broadcast_shapes(*(a.shape for a in arrays)), **options)
    return check(m.bytes(), inputs=arrays)


def check_constants(code: str, *arrays: Array, **options: Any) -> Converted:
    """Compare an operator on constants with LiteRT."""
    m = Build()
    inputs = [m.constant(a) for a in arrays]
    apply(m, code, inputs, np.broadcast_shapes(*(a.shape for a in arrays)), **options)
    m.output(m.input([3]))
    return check(m.bytes(), random_layouts=())


def node_types(result: Converted) -> list[str]:
    return [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize(("code", "dtype"), list_lines(OF_ONE))
@pytest.mark.parametrize("opset", [13, None, 22])
def test_unary_operators_equal_litert(code: str, dtype: str, opset: int | None) -> None:
    m = Build()
    apply(m, code, [add_input(m, SHAPE, dtype)], SHAPE)
    check(m.bytes(), ranges=RANGES.get(code), tolerance=tolerance(code, dtype), opset=opset)


@pytest.mark.parametrize(("code", "dtype"), list_lines(OF_TWO))
@pytest.mark.parametrize("opset", [13, None, 22])
def test_binary_operators_equal_litert(code: str, dtype: str, opset: int | None) -> None:
    m = Build()
    a, b = (add_input(m, SHAPE, dtype, name) for name in "ab")
    apply(m, code, [a, b], SHAPE)
    if opset == 13 and (code, dtype) in NEWER:
        with pytest.raises(OptionError, match=f"needs opset {NEWER[code, dtype]}"):
            convert(m.bytes(), opset=opset)
        return
    check(m.bytes(), ranges=RANGES.get(code), opset=opset)


NEWER = {
    ("EQUAL", "string"): 19,
    ("NOT_EQUAL", "string"): 19,
    **{("BITWISE_XOR", dtype): 18 for dtype in NUMBERS_OF_TWO["BITWISE_XOR"].types.split()},
}


def test_the_opset_is_the_smallest_with_the_node() -> None:
    m = Build()
    a, b = (m.input([3], dtype="uint16") for _ in range(2))
    apply(m, "BITWISE_XOR", [a, b], [3])
    assert convert(m.bytes()).opset == 18


@pytest.mark.parametrize("dtype", AddN.rows["ADD_N"].types.split())
@pytest.mark.parametrize("count", [2, 3, 5])
def test_add_n_of_every_type_equals_litert(count: int, dtype: str) -> None:
    m = Build()
    apply(m, "ADD_N", [add_input(m, SHAPE, dtype) for _ in range(count)], SHAPE)
    check(m.bytes())


BROADCASTS = [
    (SHAPE, ()),
    (SHAPE, (1,)),
    (SHAPE, (7,)),
    (SHAPE, (1, 1, 1, 7)),
    (SHAPE, (3, 1, 7)),
    (SHAPE, (2, 1, 1, 1)),
    (SHAPE, (1, 3, 5, 1)),
    ((2, 1, 5, 1), (3, 1, 7)),
    ((5, 7), (3, 1, 1)),
    ((11,), ()),
]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("constant", [None, "a", "b"])
@pytest.mark.parametrize("code", ["SUB", "LESS", "MAXIMUM", "SQUARED_DIFFERENCE"])
def test_operands_of_any_ranks_broadcast(
    code: str, constant: str | None, shapes: tuple[tuple[int, ...], ...], *, turned: bool
) -> None:
    """Operands of any ranks broadcast, on either side, constant or computed."""
    m = Build()
    generator = np.random.default_rng(3)
    inputs = []
    for name, shape in zip("ab", shapes[::-1] if turned else shapes, strict=True):
        known = generator.uniform(-8, 8, shape).astype(np.float32)
        inputs.append(m.constant(known) if name == constant else m.input(shape, name=name))
    apply(m, code, inputs, np.broadcast_shapes(*shapes))
    check(m.bytes(), seeds=[0])


@pytest.mark.parametrize("code", ["ADD", "MUL", "SUB"])
def test_operands_of_five_axes_broadcast(code: str) -> None:
    m = Build()
    a, b = m.input([2, 3, 1, 2, 5]), m.input([3, 7, 1, 5])
    apply(m, code, [a, b], [2, 3, 7, 2, 5])
    check(m.bytes())


@pytest.mark.parametrize("code", ARITHMETIC)
@pytest.mark.parametrize("activation", FUSED)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "int32", "uint32", "int64"])
def test_fused_activations_equal_litert(code: str, activation: str, dtype: str) -> None:
    """All fused activation functions; LiteRT ignores TANH and SIGN_BIT."""
    if dtype not in NUMBERS_OF_TWO[code].types.split():
        return
    m = Build()
    inputs = [add_input(m, SHAPE, dtype, name) for name in "ab"]
    apply(m, code, inputs, SHAPE, fused_activation_function=activation)
    for opset in (13, None):
        check(m.bytes(), ranges=RANGES.get(code), seeds=[0], opset=opset)


FLOATS = np.array([-np.inf, np.inf, np.nan, -0.0, 0, -3, 3, 0.5, 1.5, 2.5, -1.5, 1e-30], "f")


@pytest.mark.parametrize("code", sorted(OF_ONE.keys() - {"SIGN"}))
def test_unary_operators_of_unusual_floats_equal_litert(code: str) -> None:
    """NaN, infinities, zeros of both signs, and halves."""
    if "float32" in OF_ONE[code].types:
        check_on(code, FLOATS)


@pytest.mark.parametrize("code", Comparison.codes)
def test_comparisons_of_unusual_floats_equal_litert(code: str) -> None:
    check_on(code, *(np.array(side) for side in np.meshgrid(FLOATS, FLOATS)))


def test_negative_of_0_is_minus_0() -> None:
    """The negative of 0 is -0."""
    m = Build()
    (y,) = m.op("NEG", [m.input([2])], [[2]])
    apply(m, "RSQRT", [y], [2])
    check(m.bytes(), inputs=[np.array([0, -0.0], "f")])


def test_zeros_like_gives_0_for_infinities_and_nan() -> None:
    """ZEROS_LIKE gives 0 for infinities and NaN, so it is no multiplication by 0."""
    assert "Mul" not in node_types(check_on("ZEROS_LIKE", FLOATS))


@pytest.mark.parametrize("dtype", ["int16", "int32", "int64"])
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "MAXIMUM", "LESS"])
def test_integers_wrap_around_as_in_litert(code: str, dtype: str) -> None:
    if dtype in OF_TWO[code].types.split():
        limits = np.iinfo(dtype)
        edges = np.array([limits.min, limits.min + 1, -1, 0, 1, 7, limits.max - 1, limits.max])
        check_on(code, *(np.array(side, dtype) for side in np.meshgrid(edges, edges)))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("code", ["ABS", "NEG"])
def test_abs_and_neg_of_the_smallest_integer_equal_litert(code: str, dtype: str) -> None:
    if dtype in OF_ONE[code].types.split():
        check_on(code, np.array([np.iinfo(dtype).min, -3, 0, 3], dtype))


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("code", ["DIV", "FLOOR_DIV", "FLOOR_MOD"])
def test_division_rounds_by_sign_as_litert(code: str, dtype: str) -> None:
    """DIV rounds towards zero, FLOOR_DIV down; FLOOR_MOD has the sign of the divisor."""
    if dtype in NUMBERS_OF_TWO[code].types.split():
        a = np.array([-7, -6, -1, 0, 1, 6, 7, np.iinfo(np.int8).max])
        b = np.array([-7, -3, -2, -1, 1, 2, 3, 7])
        sides = [np.array(side, dtype) for side in np.meshgrid(a, b)]
        check_on(code, *sides)
        check_on(code, *(side + side.dtype.type(0.25) for side in sides))


def test_division_of_large_integers_is_exact() -> None:
    generator = np.random.default_rng(0)
    a = generator.integers(-(2**31) + 1, 2**31, 1000, np.int32)
    near = (a // 3 * 3)[:500]
    b = generator.integers(1, 2**31, 1000, np.int32)
    for code in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        check_on(code, a, b)
        check_on(code, a, -b)
        check_on(code, near, np.full(500, 3, np.int32))
        check_on(code, near + 1, np.full(500, -3, np.int32))


def test_tiny_remainder_of_opposite_sign_becomes_the_divisor() -> None:
    """A tiny remainder of the opposite sign of the divisor becomes the divisor."""
    check_on("FLOOR_MOD", np.array([-1e-30, 1e-30], "f"), np.array([1e-20], "f"))
    check_on("FLOOR_MOD", np.array([-1e-9, 1e-9, -5.5, 5.5], "f"), np.array([3], "f"))


def test_integer_powers_are_exact() -> None:
    """Integer powers are exact, also for negative bases."""
    a = np.array([2, -3, 10, 7, 0, -1, 46340], np.int32)
    check_on("POW", a, np.array([30, 3, 9, 0, 0, 5, 2], np.int32))
    check_on("POW", a, np.array([2], np.int32))
    check_on("POW", np.array([-2, -8.0, 0, 4], "f"), np.array([3, 1 / 3, -1, 0.5], "f"))


@pytest.mark.parametrize(("code", "dtype"), list_lines(OF_ONE))
def test_unary_operators_on_constants_fold(code: str, dtype: str) -> None:
    """Operators on constants are folded if numpy gives the exact result."""
    if dtype == "bfloat16":
        return
    low, high = RANGES.get(code, {}).get("a", (-8, 8))
    values = np.random.default_rng(5).uniform(low, high, (3, 5)).astype(carrier(dtype))
    folded = node_types(check_constants(code, values)) == ["Identity", "Identity"]
    assert folded == (OF_ONE[code].numpy is not None)


@pytest.mark.parametrize(("code", "dtype"), list_lines(OF_TWO))
@pytest.mark.parametrize("divisor", [-3, 2])
def test_binary_operators_on_constants_fold(code: str, dtype: str, divisor: int) -> None:
    if dtype in {"bfloat16", "string"} or (divisor < 0 and (dtype[0] == "u" or code == "POW")):
        return
    a = np.random.default_rng(5).uniform(-8 * (dtype[0] != "u"), 8, (3, 5)).astype(carrier(dtype))
    b = np.array([divisor], carrier(dtype))
    options: dict[str, Any] = {"fused_activation_function": "RELU6"} if code in ARITHMETIC else {}
    folded = node_types(check_constants(code, a, b, **options)) == ["Identity", "Identity"]
    assert folded or OF_TWO[code].numpy is None


def test_integer_division_by_0_and_bfloat16_do_not_fold() -> None:
    """Integer divisions by zero, and bfloat16, which numpy lacks, are not folded."""
    m = Build()
    zero = m.constant(np.zeros(3, np.int32))
    for code in ("DIV", "FLOOR_DIV", "FLOOR_MOD"):
        apply(m, code, [zero, zero], [3])
    apply(m, "FLOOR", m.op("CAST", [m.constant(np.ones(3, "f"))], [[3]], dtype="bfloat16"), [3])
    assert {"Div", "Floor", "Mod"} <= set(node_types(convert(m.bytes())))


def test_broadcasts_between_convolutions_need_no_transpose() -> None:
    """Broadcasting operators run channels first, without Transposes between convolutions."""
    m = Build()
    generator = np.random.default_rng(0)

    def conv(x: Tensor, channels: int) -> Tensor:
        w = m.constant(generator.standard_normal((channels, 3, 3, x.shape[3])).astype("f"))
        b = m.constant(generator.standard_normal(channels).astype("f"))
        options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
        return m.op("CONV_2D", [x, w, b], [[*x.shape[:3], channels]], **options)[0]

    x = conv(m.input([1, 11, 13, 3]), 5)
    for code, other in [
        ("ADD", m.constant(generator.standard_normal(5).astype("f"))),
        ("MUL", m.constant(generator.standard_normal((1, 1, 1, 5)).astype("f"))),
        ("SUB", m.constant(np.array(0.5, "f"))),
        ("MAXIMUM", m.constant(generator.standard_normal((11, 13, 1)).astype("f"))),
        ("SQUARED_DIFFERENCE", x),
    ]:
        (x,) = m.op(code, [x, other], [x.shape])
    m.output(conv(x, 7))
    assert "Transpose" not in node_types(check(m.bytes()))


def test_sum_of_empty_tensors_equals_litert() -> None:
    check_on("ADD", np.zeros((0, 3), "f"), np.ones((1, 3), "f"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("code", "compute"), COMPARED.items())
def test_integers_of_8_bits_without_a_scale_are_compared(
    code: str, compute: Any, dtype: str
) -> None:
    """torch.eye compares uint8 (litert-torch 0.10); LiteRT's kernel ends the process."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x, y = np.array([[low, 0, 1, high]] * 2, dtype), np.array([[low, 1, 0, low]] * 2, dtype)
    m = Build()
    apply(m, code, [m.input(x.shape, dtype=dtype, name=name) for name in "ab"], x.shape)
    (z,) = run_onnx(convert(m.bytes()).model, {"a": x, "b": y})
    assert (z == compute(x, y)).all()
    m = Build()
    a, b = m.input([3], dtype=dtype, scale=0.1), m.input([3], dtype=dtype)
    reason = refusal_reason(m, *m.op(code, [a, b], [[3]], dtype="bool"))
    assert "both inputs must have a scale or none, got one with a scale" in reason


def test_refuses_types_and_shapes_that_kernels_refuse() -> None:
    """Each refused type or shape has its message."""
    m = Build()
    a, b, c = m.input([3], dtype="uint8"), m.input([3]), m.input([2])
    assert "got uint8 and float32" in refusal_reason(m, *m.op("ADD", [a, b], [[3]]))
    assert "all be float32, int16 or int32, got uint8" in refusal_reason(
        m, *m.op("ABS", [a], [[3]])
    )
    assert "must broadcast to each other, got [3] and [2]" in refusal_reason(
        m, *m.op("ADD", [b, c], [[3]])
    )
    assert "it must have 2 inputs, got 1" in refusal_reason(m, *m.op("ADD", [b], [[3]]))
    assert "it must have at least two inputs, got 1" in refusal_reason(
        m, *m.op("ADD_N", [b], [[3]])
    )
    assert "input 1 is missing" in refusal_reason(m, *m.op("ADD", [b, None], [[3]]))
    assert "its output must be bool, got float32" in refusal_reason(m, *m.op("LESS", [b, b], [[3]]))
    assert "its output must be float32, got int8" in refusal_reason(
        m, *m.op("ABS", [b], [[3]], dtype="int8")
    )
    m = Build()
    x = m.input([3], dtype="complex64")
    assert "not supported for complex numbers" in refusal_reason(m, *m.op("ADD", [x, x], [[3]]))


@pytest.mark.parametrize("code", ["MAXIMUM", "MINIMUM"])
def test_maximum_and_minimum_of_int64_are_exact(code: str) -> None:
    """MAXIMUM and MINIMUM of int64 are exact, although ONNX Runtime compares 32 bits."""
    m = Build()
    a, b = (m.input([5], dtype="int64") for _ in range(2))
    m.output(*m.op(code, [a, b], [[5]]))
    x = np.array([1 << 33, (1 << 32) - 8, -(1 << 40), 1 << 31, 5])
    check(m.bytes(), inputs=[x, np.ones(5, np.int64)])


@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL"])
@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_fused_bounds_of_int64_are_exact(code: str, activation: str) -> None:
    """Bounds of int64 are exact, although ONNX Runtime's Clip compares the lower 32 bits only."""
    m = Build()
    a, b = (m.input([7], dtype="int64") for _ in range(2))
    m.output(*m.op(code, [a, b], [[7]], fused_activation_function=activation))
    x = np.array([1 << 33, (1 << 32) - 8, -(1 << 40), 1 << 31, 5, -(1 << 63), (1 << 63) - 1])
    check(m.bytes(), inputs=[x, np.ones(7, np.int64)])
