"""Functions of one input on all stored integers, compared with LiteRT.

Differences are at most one step; see test_values.py. A test with a larger bound gives the reason.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.quantized.layers import LIMITS
from tests.quantized.values import (
    Scale,
    add_input,
    all_integers,
    binary,
    check_integers,
    output_tensor,
    scales,
    unary,
)
from tests.support import Build, check, run_onnx, run_tflite
from tests.support.fusions import count_optimized_nodes
from tests.support.needs import needs_onnxruntime
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.op import find_operator
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import Converted

Array = np.ndarray[Any, Any]

TYPES = ("int8", "uint8", "int16")


def node_types(result: Converted) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1"])
def test_equal_scales_clamp_stored_integers(code: str, dtype: str) -> None:
    """If the scale does not change, stored integers are clamped."""
    if dtype == "int16" and code not in ("RELU", "RELU6"):  # there is no kernel
        return
    given, wanted = scales(dtype, 0.05, 0.05)
    x = all_integers(dtype).reshape(2, -1)
    result = check_integers(unary(code, x, given, given), [x])
    assert node_types(result) <= {"Clip", "Max", "Cast"}
    for step in (0.03, 0.08):
        check_integers(unary(code, x, given, (wanted[0] * step / 0.05, wanted[1])), [x], steps=1)


def test_activation_that_the_range_implies_needs_no_node() -> None:
    x = all_integers("uint8").reshape(2, -1)
    result = check_integers(unary("RELU6", x, (6 / 255, 0), (6 / 255, 0)), [x])
    assert node_types(result) == {"Identity"}


# Code, types, the 8-bit scales of input and output, and options.
FUNCTIONS: list[tuple[str, str, float, float, dict[str, Any]]] = [
    ("ABS", "int8 int16", 0.05, 0.05, {}),
    ("ABS", "int8 int16", 0.05, 0.08, {}),
    ("ELU", "int8", 0.05, 0.03, {}),
    ("EXP", "int8", 0.02, 0.1, {}),
    ("EXP", "int8", 0.05, 2.0, {}),
    ("GELU", "int8 uint8", 0.05, 0.02, {"approximate": False}),
    ("GELU", "int8 uint8", 0.05, 0.05, {"approximate": True}),
    ("HARD_SWISH", "int8 uint8", 0.05, 0.05, {}),
    ("HARD_SWISH", "int8 uint8", 0.02, 0.01, {}),
    ("HARD_SWISH", "int8 uint8", 0.1, 0.08, {}),
    ("LEAKY_RELU", "int8 uint8 int16", 0.05, 0.05, {"alpha": 0.2}),
    ("LEAKY_RELU", "int8 uint8 int16", 0.05, 0.03, {"alpha": 1.5}),
    ("LEAKY_RELU", "int8 uint8 int16", 0.05, 0.08, {"alpha": -0.3}),
    ("LOG", "int8", 0.05, 0.05, {}),
    ("LOG", "int8", 0.02, 0.03, {}),
    ("TANH", "int8 uint8", 0.05, 1 / 128, {}),
    ("TANH", "int8 uint8", 0.2, 1 / 100, {}),
]


@pytest.mark.parametrize(("code", "types", "step", "made", "options"), FUNCTIONS)
def test_functions_are_within_a_step_of_litert(
    code: str, types: str, step: float, made: float, options: dict[str, Any]
) -> None:
    """Outputs differ by one step at most.

    LEAKY_RELU's kernel rounds the product with alpha twice, so that one in ten outputs is a step
    off. Exact agreement would take six nodes instead of one, and would not be closer to the real
    result.
    """
    for dtype in types.split():
        given, wanted = scales(dtype, step, made)
        x = all_integers(dtype).reshape(2, -1)
        check_integers(unary(code, x, given, wanted, **options), [x], steps=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("step", [0.05, 0.2])
def test_logistic_is_within_a_step_of_litert(dtype: str, step: float) -> None:
    """The output scale is the scale that the kernels require."""
    (given,) = scales(dtype, step)
    wanted = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}[dtype]
    x = all_integers(dtype).reshape(2, -1)
    result = check_integers(unary("LOGISTIC", x, given, wanted), [x], steps=1)
    if dtype != "int16":
        assert count_optimized_nodes(result.model)["QLinearSigmoid"] == 1


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_square_roots_are_within_a_step_of_litert(dtype: str) -> None:
    """SQRT's kernel truncates, ONNX rounds: one step."""
    low, high = LIMITS[dtype]
    zero = low if dtype == "int8" else 0
    x = np.arange(zero, high + 1).astype(dtype).reshape(2, -1)
    fine = scales(dtype, 0.02)[0][0]
    for made in (1.0, 0.5):
        check_integers(
            unary("SQRT", x, (fine, zero), (fine * made, scales(dtype, 1)[0][1])), [x], steps=1
        )
    if dtype == "int8":
        check_integers(unary("RSQRT", x, (fine, zero), (0.1, -5)), [x], steps=1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("step", [0.05, 0.09, 0.02])
@pytest.mark.parametrize("constant", [None, 1])
def test_prelu_is_within_a_step_of_litert(dtype: str, step: float, constant: int | None) -> None:
    """PRELU of int16 data has int8 slopes."""
    x = all_integers(dtype)[:: 61 if dtype == "int16" else 1]
    x = x[: x.size // 32 * 32].reshape(4, -1, 8)
    kind = "int8" if dtype == "int16" else dtype
    slopes = np.random.default_rng(0).choice(all_integers(kind), (1, 1, 8))
    *given, wanted = scales(dtype, 0.05, 0.05, step)
    given[1] = (0.004, 0 if dtype == "int16" else given[1][1])
    data = binary("PRELU", (x, slopes), given, wanted, constant)
    check_integers(data, [x] if constant else [x, slopes], steps=1)


def test_prelu_refuses_int16_slopes() -> None:
    """int16 slopes are refused, because the kernel would read them as int8."""
    pair = np.zeros(3, np.int16), np.zeros(3, np.int16)
    with pytest.raises(ConversionError, match="alpha must be int8, got int16"):
        convert(binary("PRELU", pair, [(0.1, 0), (0.1, 0)], (0.1, 0)))


def gelu(x: Array) -> Array:
    """Return x times the normal distribution function of x."""
    distribution: Array = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return x * distribution


# Code, scales of input and output, the function, and the largest error of the kernel in steps.
TABLES: list[tuple[str, float, float, Callable[[Array], Array], int]] = [
    ("EXP", 0.02 / 256, 0.1 / 256, np.exp, 18),
    ("GELU", 0.05 / 256, 0.05 / 256, gelu, 2),
    ("GELU", 0.05 / 256, 0.02 / 256, gelu, 25),
    ("LOGISTIC", 2.0**-12, 2.0**-15, lambda x: 1 / (1 + np.exp(-x)), 6),
    ("LOGISTIC", 2.0**-10, 2.0**-15, lambda x: 1 / (1 + np.exp(-x)), 1),
    ("TANH", 2.0**-12, 2.0**-15, np.tanh, 12),
    ("TANH", 2.0**-11, 2.0**-15, np.tanh, 12),
    ("TANH", 0.05 / 256, 2.0**-15, np.tanh, 3),
]


@pytest.mark.parametrize(("code", "step", "made", "function", "off"), TABLES)
def test_int16_functions_are_close_to_real_results(
    code: str, step: float, made: float, function: Callable[[Array], Array], off: int
) -> None:
    """Outputs are within a step of the real result.

    The kernels are less exact: they interpolate in a table of a few hundred values, or use
    fixed-point polynomials. Where functions are steep, as LOG and RSQRT near 0, models have the
    kernel's table.
    """
    x = all_integers("int16").reshape(2, -1)
    data = unary(code, x, (step, 0), (made, 0))
    check(data, inputs=[x], steps=off)
    model = convert(data).model
    low, high = LIMITS["int16"]
    real = function(x * np.float64(np.float32(step)))
    truth = np.clip(np.round(real / np.float32(made)), low, high)
    if code in ("EXP", "GELU"):  # `verify` computes what it allows from the kernel's table
        (op,) = read_model(data).graphs[0].ops
        (kernel,) = run_tflite(data, [x])
        assert find_operator(op).allowed_steps == np.abs(kernel - truth).max() + 1
    for optimize in (True, False):
        (have,) = run_onnx(model, {model.graph.input[0].name: x}, optimize=optimize)
        assert np.abs(have - truth).max() <= 1


@pytest.mark.parametrize("step", [0.0001, 0.002])
@pytest.mark.parametrize("code", ["LOG", "RSQRT"])
def test_int16_tables_equal_litert(code: str, step: float) -> None:
    """Models have the kernel's table where its interpolation is far from the function."""
    x = np.arange(1, 2**15, dtype=np.int16)  # the kernel of RSQRT refuses others
    check(unary(code, x, (step, 0), (step, 0)), inputs=[x])


SOFTMAX = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [1, 2, 3, 128, 1001, 20011])
@pytest.mark.parametrize("step", [0.001, 0.1, 1.0])
def test_softmax_is_within_a_step_of_litert(dtype: str, size: int, step: float) -> None:
    if dtype == "int8" and size in {2, 3}:
        needs_onnxruntime(1, 29, "QLinearSoftmax of int8 in short rows")
    x = np.random.default_rng(size).choice(all_integers(dtype), (5, size))
    (given,) = scales(dtype, step)
    check_integers(unary("SOFTMAX", x, given, SOFTMAX[dtype], beta=1.0), [x], steps=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("beta", [0.5, 3.0])
def test_softmax_with_beta_is_within_a_step(dtype: str, beta: float) -> None:
    x = np.random.default_rng(0).choice(all_integers(dtype), (5, 37))
    (given,) = scales(dtype, 0.05)
    check_integers(unary("SOFTMAX", x, given, SOFTMAX[dtype], beta=beta), [x], steps=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_softmax_to_int16_is_within_a_step(dtype: str) -> None:
    x = np.random.default_rng(0).choice(all_integers(dtype), (5, 37))
    (given,) = scales(dtype, 0.05)
    check_integers(unary("SOFTMAX", x, given, SOFTMAX["int16"], "int16", beta=1.0), [x], steps=1)


@pytest.mark.parametrize("wanted", [(1 / 256, 20), (1 / 300, 0), (0.01, 131), (1 / 1000, 3)])
@pytest.mark.parametrize("size", [1, 2, 37])
def test_softmax_of_uint8_accepts_any_output_scale(wanted: Scale, size: int) -> None:
    """The kernel and the model accept every output scale, and ignore the zero point.

    Results saturate. Nodes that ONNX Runtime fuses would overflow for small scales.
    """
    x = np.random.default_rng(0).choice(all_integers("uint8"), (5, size))
    data = unary("SOFTMAX", x, (0.05, 131), wanted, beta=1.0)
    check(data, inputs=[x], steps=1)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_int16_softmax_is_close_to_real_results(beta: float) -> None:
    """The kernel is off by up to 30 steps, the conversion by one, as above."""
    x = np.random.default_rng(0).integers(-9000, 9000, (50, 12)).astype(np.int16)
    step = 0.0018
    data = unary("SOFTMAX", x, (step, 0), SOFTMAX["int16"], beta=beta)
    check(data, inputs=[x], steps=30)
    model = convert(data).model
    grown = np.exp((x - x.max(-1, keepdims=True)) * np.float64(np.float32(step)) * beta)
    truth = np.minimum(np.round(grown / grown.sum(-1, keepdims=True) * 32768), 32767)
    (have,) = run_onnx(model, {model.graph.input[0].name: x})
    assert np.abs(have - truth).max() <= 1


@pytest.mark.parametrize("size", [17, 64, 1000])
@pytest.mark.parametrize("step", [0.0003, 0.003, 0.2])
def test_low_elements_of_int16_softmax_weigh_as_in_litert(size: int, step: float) -> None:
    """The kernel's smallest exponential is 2 / 32768: 999 hidden elements weigh 6 % together."""
    x = np.random.default_rng(0).choice(all_integers("int16"), (6, size))
    x[1:] = -32000
    x[1, :3] = 32000, 31000, 0
    x[2, :3] = 32000
    data = unary("SOFTMAX", x, (step, 0), SOFTMAX["int16"], beta=1.0)
    check(data, inputs=[x], steps=6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [1, 2, 37, 1001])
@pytest.mark.parametrize("step", [0.001, 0.1, 1.0])
def test_log_softmax_is_within_a_step_of_litert(dtype: str, size: int, step: float) -> None:
    x = np.random.default_rng(size).choice(all_integers(dtype), (5, size))
    (given,) = scales(dtype, step)
    wanted = {"int8": (16 / 256, 127), "uint8": (16 / 256, 255)}[dtype]
    check_integers(unary("LOG_SOFTMAX", x, given, wanted), [x], steps=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("size", [1, 2, 37, 256])
def test_l2_normalization_is_within_a_step_of_litert(dtype: str, size: int) -> None:
    x = np.random.default_rng(size).choice(all_integers(dtype), (50, size))
    (given,) = scales(dtype, 0.05)
    wanted = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)}[dtype]
    x[0] = given[1]
    check_integers(unary("L2_NORMALIZATION", x, given, wanted), [x], steps=1)


def test_softmax_of_int16_keeps_masks_of_large_scales() -> None:
    """The kernel's differences wrap around in 32 bits; masked elements are 0 in the ONNX model."""
    x = np.array([[0, -32767, 0, -32767]], np.int16)
    m = Build()
    y = output_tensor(m, x.shape, "int16", (1 / 32768, 0))
    m.output(*m.op("SOFTMAX", [add_input(m, x, (1e34, 0))], [y], beta=1.0))
    result = convert(m.bytes())
    (have,) = run_onnx(result.model, {result.model.graph.input[0].name: x})
    np.testing.assert_array_equal(have, [[16384, 0, 16384, 0]])
