"""Operators with two inputs on stored integers, compared with LiteRT.

Moved and compared integers are equal. Computed integers differ by at most one step: the kernels
multiply by fixed-point numbers, round each product twice, and round halves away from zero; ONNX
rounds once, and halves to even. A test with a larger bound gives the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.quantized.values import (
    add_input,
    all_integers,
    binary,
    check_float_conversion,
    check_integers,
    grid,
    output_tensor,
    scales,
    unary,
)
from tests.support import Build, check, run_onnx, run_tflite
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support import Converted

TYPES = ("int8", "uint8", "int16")
# Scales of two inputs and an output: a small, a large and an equal output scale.
TRIPLES = {
    "apart": (0.05, 0.03, 0.08),
    "equal": (0.05, 0.05, 0.05),
    "fine": (0.01, 0.03, 0.004),
    "wide": (0.11, 0.02, 0.3),
}
# Scales of int16 that are not powers of two; two operators require powers of two by default.
GENERAL: dict[str, dict[str, Any]] = {"ADD": {"pot_scale_int16": False}}
GENERAL["SUB"] = GENERAL["ADD"]


def node_types(result: Converted) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


# A search over all pairs of scales may take seconds for a case of ADD.
@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL"])
def test_arithmetic_is_within_a_step_of_litert(code: str, triple: str, dtype: str) -> None:
    *given, wanted = scales(dtype, *TRIPLES[triple])
    pair = grid(dtype)
    check_integers(binary(code, pair, given, wanted, **GENERAL.get(code, {})), pair, steps=1)


# A search over all pairs of scales may take seconds for a case of ADD.
@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL"])
def test_fused_activations_clamp_as_the_kernels_do(code: str, activation: str, dtype: str) -> None:
    """Activations clamp to integers: 1 is 12.5 steps of 0.08, which the kernels round to 13."""
    *given, wanted = scales(dtype, 0.05, 0.03, 0.08)
    pair, options = grid(dtype), {**GENERAL.get(code, {}), "fused_activation_function": activation}
    data = binary(code, pair, given, wanted, **options)
    check_integers(data, pair, steps=1)
    if activation == "RELU_N1_TO_1":
        (y,) = run_tflite(data, pair)
        model = convert(data).model
        feeds = {port.name: x for port, x in zip(model.graph.input, pair, strict=True)}
        (have,) = run_onnx(model, feeds)
        assert (have.min(), have.max()) == (y.min(), y.max())


# A search over all pairs of scales may take seconds for a case of ADD.
@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("constant", [0, 1])
@pytest.mark.parametrize("code", ["ADD", "MUL"])
def test_operators_with_a_constant_are_fused(code: str, constant: int, dtype: str) -> None:
    *given, wanted = scales(dtype, 0.05, 0.03, 0.08)
    pair = grid(dtype)
    result = check_integers(
        binary(code, pair, given, wanted, constant), [pair[1 - constant]], steps=1
    )
    assert count_optimized_nodes(result.model)[f"QLinear{code.title()}"] == 1


# A search over all pairs of scales may take seconds for a case of ADD.
@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "DIV"])
@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 3, 5), (5,)), ((2, 1, 3, 1, 5), (2, 7, 3, 1, 1)), ((2, 3, 1, 5, 1, 2), (7, 1))],
)
def test_shapes_broadcast_as_in_litert(code: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)
    pair = (
        generator.integers(-128, 128, a).astype(np.int8),
        generator.integers(20, 128, b).astype(np.int8),
    )
    *given, wanted = scales("int8", 0.05, 0.03, 0.02)
    check_integers(binary(code, pair, given, wanted), pair, steps=1)


@pytest.mark.parametrize("code", ["ADD", "SUB"])
@pytest.mark.parametrize("steps", [(12, 12, 12), (12, 14, 12), (13, 12, 12)])
def test_scales_of_powers_of_two_agree_with_litert(code: str, steps: tuple[int, int, int]) -> None:
    """int16 with scales of powers of two, for which the kernels shift and do not broadcast."""
    pair = tuple(np.broadcast_arrays(*grid("int16")))
    *given, wanted = ((2.0**-step, 0) for step in steps)
    a, b = (np.ascontiguousarray(each) for each in pair)
    check_integers(binary(code, (a, b), given, wanted, pot_scale_int16=True), (a, b), steps=1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("step", [0.5, 0.05, 0.01])
def test_quotients_are_within_a_step_of_litert(dtype: str, step: float) -> None:
    """Quotients agree to a step, except below half a step, where the result should be 0.

    There the kernel returns extreme integers: it shifts by more than 31 bits, which C does not
    define.
    """
    a, b = grid(dtype)
    *given, wanted = scales(dtype, 0.05, 0.03, step)
    wanted = (step, wanted[1])
    b = b[:, b[0] != given[1][1]]
    data = binary("DIV", (a, b), given, wanted)
    (scale_a, zero_a), (scale_b, zero_b) = given
    quotients = (a.astype(float) - zero_a) / (b.astype(float) - zero_b) * (scale_a / scale_b)
    defined = np.abs(quotients) >= 0.51 * step
    result = convert(data, io_layout="tflite")
    feeds = {port.name: x for port, x in zip(result.model.graph.input, (a, b), strict=True)}
    for optimize in (True, False):
        (have,) = run_onnx(result.model, feeds, optimize=optimize)
        apart = np.abs(run_tflite(data, (a, b))[0].astype(int) - have)
        assert apart[defined].max() <= 1
        assert np.abs(have.astype(int) - wanted[1])[~defined].max() <= 1


@pytest.mark.parametrize("steps", [(0.05, 0.03), (0.05, 0.05), (0.001, 0.001), (0.7, 0.0001)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "code", ["EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]
)
def test_comparisons_equal_litert_without_dequantization(
    code: str, dtype: str, steps: tuple[float, float]
) -> None:
    """The kernels compare in steps of 1/256, so that close numbers of a fine scale are equal."""
    given = scales(dtype, *steps)
    given = [given[0], (given[1][0], given[0][1] if steps[0] == steps[1] else given[1][1])]
    pair = grid(dtype)
    result = check(binary(code, pair, given, None), inputs=pair)
    assert "DequantizeLinear" not in node_types(result)
    check(binary(code, pair, given, None, 1), inputs=pair[:1], optimize=[True])


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("code", ["EQUAL", "NOT_EQUAL"])
def test_comparisons_with_a_constant_infinity_equal_litert(code: str, dtype: str) -> None:
    """The infinity of torch.isinf and logsumexp has an infinite scale, and is 0 in the kernels."""
    x, scale = all_integers(dtype), scales(dtype, 0.05)[0]
    m = Build()
    infinity = m.constant(np.array(0, dtype), scale=np.inf, zero_point=-128 * (dtype == "int8"))
    y = output_tensor(m, x.shape, "bool", None)
    m.output(*m.op(code, [add_input(m, x, scale), infinity], [y]))
    check(m.bytes(), inputs=[x])


def test_other_operators_refuse_infinite_scales() -> None:
    x, scale = all_integers("int8"), (0.05, 0)
    m = Build()
    infinity = m.constant(np.array(0, "int8"), scale=np.inf, zero_point=0)
    m.output(
        *m.op("ADD", [add_input(m, x, scale), infinity], [output_tensor(m, x.shape, "int8", scale)])
    )
    with pytest.raises(ConversionError, match="must be finite, got inf"):
        convert(m.bytes())


def test_comparisons_at_equal_scales_are_exact() -> None:
    """Numbers with equal scales are compared exactly."""
    pair, given = grid("int8"), [(0.05, 3), (0.05, 3)]
    check_integers(binary("LESS", pair, given, None), pair)


@pytest.mark.parametrize("steps", [(0.05, 0.05, 0.05), (0.05, 0.03, 0.08)])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["MAXIMUM", "MINIMUM"])
def test_extremes_copy_stored_integers(code: str, dtype: str, steps: tuple[float, ...]) -> None:
    """The kernels compare stored integers, and copy one of them, whatever the scales are."""
    *given, wanted = scales(dtype, *steps)
    if steps[0] == steps[1]:
        given = [wanted, wanted]
    pair = grid(dtype)
    result = check_integers(binary(code, pair, given, wanted), pair)
    assert "DequantizeLinear" not in node_types(result)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("code", ["BITWISE_XOR", "FLOOR_DIV", "FLOOR_MOD"])
def test_bitwise_and_floor_operators_ignore_scales(code: str, dtype: str) -> None:
    a, b = grid(dtype)
    b = b[:, b[0] != 0]
    *given, wanted = scales(dtype, 0.05, 0.03, 0.08)
    check_integers(binary(code, (a, b), given, wanted), (a, b))


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_negation_wraps_around_as_in_the_kernel(dtype: str) -> None:
    """The negative of the smallest integer wraps around, as in the kernel."""
    given, wanted = scales(dtype, 0.05, 0.03)
    x = all_integers(dtype).reshape(2, -1)
    check_integers(unary("NEG", x, given, wanted), [x])


SQUARES = {
    "the second scale is smaller": (0.05, 0.03, 0.8),
    "the first scale is smaller": (0.021, 0.05, 0.5),
    "equal": (0.05, 0.05, 0.05),
    "a power of two apart": (0.05, 0.0125, 0.3),
    "far apart": (0.05, 0.0004, 0.3),
}


@pytest.mark.parametrize("steps", SQUARES.values(), ids=SQUARES)
def test_squared_differences_are_equal_to_litert(steps: tuple[float, ...]) -> None:
    *given, wanted = scales("int8", *steps)
    pair = grid("int8")
    data = binary("SQUARED_DIFFERENCE", pair, given, wanted)
    for activations in ("int8", "uint8"):
        check(data, inputs=pair, steps=0, activations=activations)
    check_float_conversion(data, pair, steps=1)


def test_squared_difference_of_a_constant_is_equal_to_litert() -> None:
    a, b = grid("int8")
    m = Build()
    x = add_input(m, a, (0.05, -3))
    constant = m.constant(b, scale=0.03, zero_point=4)
    m.output(
        *m.op(
            "SQUARED_DIFFERENCE", [x, constant], [output_tensor(m, [256, 256], "int8", (0.8, -128))]
        )
    )
    check(m.bytes(), inputs=[a], steps=0)


@pytest.mark.parametrize(
    ("code", "types"),
    [
        ("ADD", ("int8", "uint8", "int8")),
        ("ADD", ("int8", "int8", "int16")),
        ("MUL", ("int16", "int16", "int8")),
        ("MAXIMUM", ("int8", "int16", "int8")),
        ("LESS", ("int8", "uint8", "bool")),
        ("FLOOR_DIV", ("uint8", "uint8", "uint8")),
    ],
)
def test_refuses_unsupported_combinations_of_types(code: str, types: tuple[str, str, str]) -> None:
    m = Build()
    a, b = (add_input(m, np.zeros(3, dtype), (0.05, 0)) for dtype in types[:2])
    m.output(*m.op(code, [a, b], [output_tensor(m, [3], types[2], (0.05, 0))]))
    with pytest.raises(ConversionError, match=r"its (inputs|output) must"):
        convert(m.bytes())
