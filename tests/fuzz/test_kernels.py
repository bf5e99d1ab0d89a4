"""Which differences from LiteRT are no faults, by the operators of a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.conformance.table import Bound
from tests.fuzz.bounds import bound_of_file
from tests.fuzz.extremes import find_extremes
from tests.fuzz.kernels import find_amplifiers, find_undefined_operators
from tests.quantized.layers import Layer
from tests.quantized.test_products import SCHEMES, SHAPES
from tests.support import Build, pack
from tflite2onnx.reader.model import read_model

ZEROS = [[np.zeros(3, np.float32)]]


def integers(m: Build, dtype: str, scale: float, shape: tuple[int, ...] = (3,)) -> Any:
    """Return a quantized input."""
    return m.input([*shape], dtype=dtype, scale=scale)


def build_unary(
    code: str, dtype: str, scales: tuple[float, float], *, twice: bool = False
) -> bytes:
    """Return a model of an operator from one scale to another; of NEG and the operator."""
    m = Build()
    x = integers(m, dtype, scales[0])
    if twice:
        (x,) = m.op("NEG", [x], [m.tensor([3], dtype=dtype, scale=scales[0])])
    m.output(*m.op(code, [x], [m.tensor([3], dtype=dtype, scale=scales[1])]))
    return m.bytes()


def build_quotient(dtype: str, divisor: list[int] | None, *, scale: float = 0.5) -> bytes:
    """Return a model of DIV by a constant, or by an input."""
    m = Build()
    x = integers(m, dtype, scale)
    by = integers(m, dtype, 0.5)
    if divisor is not None:
        by = m.constant(np.array(divisor, dtype), scale=0.5)
    m.output(*m.op("DIV", [x, by], [m.tensor([3], dtype=dtype, scale=0.5)]))
    return m.bytes()


def test_div_shifts_beyond_31_bits_are_undefined() -> None:
    """By 31 bits at most, and never by 0."""
    three = np.full(3, 3, np.int8)
    assert not find_extremes(build_quotient("int8", [1, 1, 1]))
    assert find_extremes(build_quotient("int8", [1, 0, 1]))
    assert find_extremes(build_quotient("int8", [1, 100, 1]))
    assert not find_extremes(build_quotient("int8", [1, 100, 1], scale=100.0))
    assert find_extremes(build_quotient("int8", None))
    assert not find_extremes(build_quotient("int8", None, scale=4.0), [[three, three]])
    assert find_extremes(build_quotient("int8", None, scale=4.0), [[three, three - 3]])


@pytest.mark.parametrize(("divisor", "is_undefined"), [(1.0, False), (0.0, True), (-2e-38, True)])
def test_quotients_that_overflow_are_undefined(divisor: float, *, is_undefined: bool) -> None:
    """The kernel limits an infinity to the largest float."""
    m = Build()
    m.output(*m.op("DIV", [m.input([3]), m.constant(np.array([divisor], np.float32))], [[3]]))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(
    ("code", "dtype", "scales", "is_undefined"),
    [
        ("EXP", "int16", (1e-5, 1.0), False),
        ("EXP", "int16", (1e-3, 1e-4), True),
        ("EXP", "int8", (0.1, 1e-4), False),
        ("LOG", "int16", (1e-4, 1e-4), True),
        ("LOG", "int8", (0.1, 0.1), False),
        ("NEG", "int8", (1.0, 1.0), False),
        ("NEG", "int8", (1.0, 1e-5), True),
    ],
)
def test_unary_operators_with_too_small_scales_are_undefined(
    code: str, dtype: str, scales: tuple[float, float], *, is_undefined: bool
) -> None:
    """Entries of a table that are cut, and products beyond 32 bits."""
    assert bool(find_extremes(build_unary(code, dtype, scales))) is is_undefined


@pytest.mark.parametrize(("slope", "is_undefined"), [(-0.2, False), (-1e30, True)])
def test_leaky_relu_with_a_huge_slope_is_undefined(slope: float, *, is_undefined: bool) -> None:
    m = Build()
    y = m.tensor([3], dtype="int16", scale=0.5)
    m.output(*m.op("LEAKY_RELU", [integers(m, "int16", 0.5)], [y], alpha=slope))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("zero_point", "is_undefined"), [(0, False), (3, True)])
def test_int16_gelu_with_a_zero_point_is_undefined(zero_point: int, *, is_undefined: bool) -> None:
    m = Build()
    y = m.tensor([3], dtype="int16", scale=0.5, zero_point=zero_point)
    m.output(*m.op("GELU", [integers(m, "int16", 0.5)], [y], approximate=False))
    assert bool([*find_undefined_operators(read_model(m.bytes()), {})]) is is_undefined


@pytest.mark.parametrize(("scale", "is_undefined"), [(1e-3, False), (1.0, True)])
def test_reduce_prod_with_large_scale_is_undefined(scale: float, *, is_undefined: bool) -> None:
    """The product has 3 elements, each of up to 128 steps."""
    m = Build()
    axes = m.constant(np.array([0], np.int32))
    y = m.tensor([], dtype="int8", scale=1.0)
    m.output(*m.op("REDUCE_PROD", [integers(m, "int8", scale), axes], [y]))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("weight", "is_undefined"), [(-127, False), (-128, True)])
def test_hybrid_product_with_a_weight_of_minus_128_is_undefined(
    weight: int, *, is_undefined: bool
) -> None:
    m = Build()
    w = m.constant(np.array([[1, weight, 1]], np.int8), scale=0.5)
    m.output(*m.op("FULLY_CONNECTED", [m.input([2, 3]), w, None], [[2, 1]]))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("width", "is_undefined"), [(2, False), (1, True)])
def test_rfft2d_of_rows_of_one_element_is_undefined(width: int, *, is_undefined: bool) -> None:
    m = Build()
    lengths = m.constant(np.array([4, width], np.int32))
    m.output(*m.op("RFFT2D", [m.input([4, 2]), lengths], [[4, width // 2 + 1]], dtype="complex64"))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("batches", "is_undefined"), [([1, 2], False), ([2, 1], True)])
def test_hybrid_batch_matmul_with_two_batches_is_undefined(
    batches: list[int], *, is_undefined: bool
) -> None:
    m = Build()
    w = m.constant(np.ones((3, 5), np.int8), scale=0.5)
    made = m.op("BATCH_MATMUL", [m.input([*batches, 4, 3]), w], [[*batches, 4, 5]])
    m.output(*made)
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("dtype", "is_undefined"), [("float32", False), ("int32", True)])
def test_pow_of_integers_is_undefined(dtype: str, *, is_undefined: bool) -> None:
    m = Build()
    operands = m.input([3], dtype=dtype), m.constant(np.array(2, dtype))
    m.output(*m.op("POW", [*operands], [[3]], dtype=dtype))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("scale", "is_undefined"), [(0.5, False), (1.5, True)])
def test_comparisons_with_scales_above_1_are_undefined(scale: float, *, is_undefined: bool) -> None:
    m = Build()
    operands = [integers(m, "int8", each) for each in (scale, 0.5)]
    m.output(*m.op("LESS", operands, [[3]], dtype="bool"))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("code", "is_undefined"), [("DEQUANTIZE", False), ("ABS", True)])
def test_kernels_but_dequantize_are_undefined_for_several_scales(
    code: str, *, is_undefined: bool
) -> None:
    m = Build()
    x = m.constant(np.ones(3, np.int8), scale=[0.5, 0.25, 0.125])
    output = m.tensor([3]) if code == "DEQUANTIZE" else m.tensor([3], dtype="int8", scale=0.5)
    m.output(*m.op(code, [x], [output]))
    assert bool([*find_undefined_operators(read_model(m.bytes()), {})]) is is_undefined


@pytest.mark.parametrize(("size", "is_undefined"), [(8, False), (7, True), (9, True)])
def test_hadamard_output_of_another_size_is_undefined(size: int, *, is_undefined: bool) -> None:
    m = Build()
    options = {"hadamard_size": 4}
    m.output(*m.custom("aeq.hadamard_rotation", [m.input([2, 4])], [[1, size]], options))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(
    ("shape", "scheme", "is_undefined"),
    [
        ("CONV_2D", "int16", False),
        ("CONV_2D", "int16 and int4", False),
        ("TRANSPOSE_CONV", "int16", False),
        ("FULLY_CONNECTED", "int16 by int16", False),
        ("FULLY_CONNECTED", "uint8 to int16", False),
        ("FULLY_CONNECTED", "int8 to int16", True),
    ],
)
def test_types_that_the_kernel_lacks_are_undefined(
    shape: str, scheme: str, *, is_undefined: bool
) -> None:
    model = read_model(Layer(SHAPES[shape], SCHEMES[scheme]).model())
    assert bool([*find_undefined_operators(model, {})]) is is_undefined


@pytest.mark.parametrize(("size", "is_longer"), [(3, False), (5, True)])
def test_constant_longer_than_its_packed_elements_is_found(size: int, *, is_longer: bool) -> None:
    """Three bytes hold five elements of 4 bits."""
    m = Build()
    m.output(*m.op("CAST", [m.constant(np.zeros(size, np.int8))], [[size]]))
    model = schema.ModelT.InitFromPackedBuf(m.bytes())
    tensor = model.subgraphs[0].tensors[model.subgraphs[0].operators[0].inputs[0]]
    tensor.type, tensor.shape = schema.TensorType.INT4, [5]
    assert bool(find_extremes(pack(model))) is is_longer


def test_subnormal_constants_are_found() -> None:
    m = Build()
    m.output(*m.op("ADD", [m.input([2]), m.constant(np.array([1e-40, 0], np.float32))], [[2]]))
    assert find_extremes(m.bytes())


@pytest.mark.parametrize(("x", "cancels"), [([-5.0, -7.0], True), ([-5.0, 1.0], False)])
def test_cancellation_in_gelu_is_found(x: list[float], *, cancels: bool) -> None:
    m = Build()
    m.output(*m.op("GELU", [m.input([2])], [[2]], approximate=False))
    assert bool(find_extremes(m.bytes(), [[np.array(x, np.float32)]])) is cancels


@pytest.mark.parametrize(("size", "is_undefined"), [(1, True), (2, False)])
def test_single_computed_number_in_gelu_is_undefined(size: int, *, is_undefined: bool) -> None:
    """A single number may be below -2; of several numbers some have larger results."""
    m = Build()
    (x,) = m.op("FLOOR", [m.input([size])], [[size]])
    m.output(*m.op("GELU", [x], [[size]], approximate=False))
    assert bool(find_extremes(m.bytes())) is is_undefined


@pytest.mark.parametrize(("code", "amplifier"), [("TANH", "CEIL"), ("NEG", "")])
def test_jumps_at_limits_of_functions_are_amplifiers(code: str, amplifier: str) -> None:
    """At the limits of functions, which LiteRT's kernels reach earlier."""
    m = Build()
    (x,) = m.op(code, [m.input([2])], [[2]])
    m.output(*m.op("CEIL", [x], [[2]]))
    assert find_amplifiers(m.bytes()) == amplifier


def test_steps_of_computed_operands_are_amplified() -> None:
    """Only steps of computed operands are amplified, because inputs are equal."""
    assert find_amplifiers(build_unary("EXP", "int8", (0.1, 0.1), twice=True)) == "EXP"
    assert not find_amplifiers(build_unary("EXP", "int8", (0.1, 0.1)))
    assert not find_amplifiers(build_unary("NEG", "int8", (0.1, 0.1), twice=True))


def test_rounding_of_float_data_is_amplified() -> None:
    """LiteRT rounds float data before it multiplies them by integers."""
    for scale, function, amplifier in (
        (0.5, "NONE", "RSQRT"),
        (None, "NONE", ""),
        (0.5, "RELU6", "FULLY_CONNECTED"),
        (None, "RELU6", ""),
    ):
        m = Build()
        w = m.constant(np.ones((1, 3), np.int8 if scale else np.float32), scale=scale)
        operands = [m.input([2, 3]), w, None]
        (x,) = m.op("FULLY_CONNECTED", operands, [[2, 1]], fused_activation_function=function)
        m.output(*m.op("RSQRT", [x], [[2, 1]]))
        assert find_amplifiers(m.bytes()) == amplifier


def test_bounds_follow_from_the_operators_in_the_file() -> None:
    """A bound is the bound of an operator of the file for its element type."""
    own = Bound(1e-4, 1)
    assert bound_of_file(build_unary("NEG", "int8", (0.1, 0.1)), own) == own
    assert bound_of_file(build_unary("LOGISTIC", "int8", (1.0, 1 / 64)), own).steps == 48
    assert bound_of_file(build_unary("EXP", "int16", (1e-4, 1e-4)), own).steps > 1
    assert bound_of_file(b"nothing", own) == own
    m = Build()
    w = m.constant(np.array([[1, 2, 1]], np.int8), scale=0.5)
    m.output(*m.op("FULLY_CONNECTED", [m.input([2, 3]), w, None], [[2, 1]]))
    assert bound_of_file(m.bytes(), own).part == 0.1


@pytest.mark.parametrize(("scale", "steps"), [(1 / 64, 1), (1.0, 2), (10.0, 28), (1e3, 64)])
def test_bound_of_int16_sums_depends_on_scale(scale: float, steps: int) -> None:
    """Sums of products of int16 are rounded to 24 bits."""
    m = Build()
    x = integers(m, "int16", scale, (2, 112))
    w = m.constant(np.ones((5, 112), np.int8), scale=0.5)
    y = m.tensor([2, 5], dtype="int16", scale=5.0)
    m.output(*m.op("FULLY_CONNECTED", [x, w, None], [y]))
    assert bound_of_file(m.bytes(), Bound(1e-4, 1)).steps == steps
