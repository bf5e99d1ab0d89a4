"""Operators that give exactly the integers of LiteRT's default kernels, XNNPACK.

The inputs are all integers of a type, or all pairs of them. The scales give many halves, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

from tests.quantized.values import all_integers, binary, grid, output_tensor, unary
from tests.support import Build, check, difference, run_onnx, run_tflite
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.convert import convert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import ModelProto

    from tests.quantized.values import Scale

Array = np.ndarray[Any, Any]

# Quotients of input scale and output scale: some give halves, the last two are the limits.
QUOTIENTS = (0.013, 0.25, 0.37, 0.5, 1.0, 1.5, 2.0, 3.7, 1 / 256, 128.0)
ZEROS = {"int8": [(-128, 127), (5, -7), (127, -128)], "uint8": [(0, 255), (128, 120), (200, 3)]}


def run_default(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of LiteRT's default kernels: XNNPACK, except for HARD_SWISH."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    operators = {each["op_name"] for each in interpreter._get_ops_details()}  # noqa: SLF001
    assert operators & {"DELEGATE", "HARD_SWISH"}
    for port, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(port["index"], array)
    interpreter.invoke()
    ports = interpreter.get_output_details()
    return [np.asarray(interpreter.get_tensor(port["index"])) for port in ports]


def check_exact(data: bytes, inputs: Sequence[Array], **options: Any) -> ModelProto:
    """Compare a model with the integers of the default kernels, with and without optimizations."""
    model = convert(data, io_layout="tflite", **options).model
    feeds = {port.name: array for port, array in zip(model.graph.input, inputs, strict=True)}
    wanted = run_default(data, inputs)
    for optimize in (True, False):
        for want, have in zip(wanted, run_onnx(model, feeds, optimize=optimize), strict=True):
            assert difference(want, have) == ""
    return model


@pytest.mark.parametrize("activations", ["auto", "int8"])
@pytest.mark.parametrize("quotient", QUOTIENTS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rescaled_integers_equal_xnnpack(dtype: str, quotient: float, activations: str) -> None:
    x = all_integers(dtype).reshape(2, -1)
    for given, wanted in ZEROS[dtype]:
        data = unary("QUANTIZE", x, (0.05 * quotient, given), (0.05, wanted))
        left = count_optimized_nodes(check_exact(data, [x], activations=activations))
        assert left["QLinearLeakyRelu"] == 1, left


@pytest.mark.parametrize("scale", [(2 / 255, -1), (1 / 255, -128), (0.0371, 5), (0.25, 0)])
def test_real_numbers_are_quantized_as_by_xnnpack(scale: Scale) -> None:
    """QUANTIZE multiplies by the inverse scale, as XNNPACK does; QuantizeLinear divides."""
    halves = np.arange(-300, 300, 0.5).astype(np.float32) * np.float32(scale[0])
    near = [halves, np.nextafter(halves, np.float32(-9)), np.nextafter(halves, np.float32(9))]
    pixels = np.arange(256) / np.array([[127.5], [255], [255]]) - [[1], [0], [0.5]]
    x = np.concatenate([*near, pixels.ravel()]).astype(np.float32)
    m = Build()
    y = output_tensor(m, x.shape, "int8", scale)
    m.output(*m.op("QUANTIZE", [m.input(x.shape)], [y]))
    nodes = [node.op_type for node in check_exact(m.bytes(), [x], activations="int8").graph.node]
    assert nodes == ["Mul"] * (scale[0] != 0.25) + ["QuantizeLinear"]


@pytest.mark.parametrize("alpha", [0.2, 1.5, -0.3, 0.5, -1.0])
@pytest.mark.parametrize("quotient", QUOTIENTS[:-2])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_leaky_relu_equals_the_default_kernel(dtype: str, quotient: float, alpha: float) -> None:
    x = all_integers(dtype).reshape(2, -1)
    for given, wanted in ZEROS[dtype]:
        if abs(quotient * alpha) < 1 / 256:  # XNNPACK leaves this case to the built-in kernel
            continue
        data = unary("LEAKY_RELU", x, (0.05 * quotient, given), (0.05, wanted), alpha=alpha)
        assert count_optimized_nodes(check_exact(data, [x]))["QLinearLeakyRelu"] == 1


@pytest.mark.parametrize("activations", ["auto", "int8"])
@pytest.mark.parametrize(
    "steps",
    [
        (0.05, 0.05),
        (0.02, 0.01),
        (0.1, 0.08),
        (0.3731673, 0.2524547),
        (0.1487567, 0.0828025),
        (0.0003, 0.0004),
        (0.005, 0.02),
        (2.5, 1.5),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_hard_swish_is_looked_up_in_a_table(
    dtype: str, steps: tuple[float, float], activations: str
) -> None:
    x = all_integers(dtype).reshape(2, -1)
    for zeros in ZEROS[dtype]:
        given, wanted = zip(steps, zeros, strict=True)
        model = check_exact(unary("HARD_SWISH", x, given, wanted), [x], activations=activations)
        nodes = {node.op_type for node in model.graph.node}
        assert "GatherElements" in nodes
        assert "HardSwish" not in nodes


@pytest.mark.parametrize("steps", [(0.05, 0.05 / 200), (1e-6, 0.05), (4.0, 3e-8)])
def test_hard_swish_of_extreme_scales_has_no_table(steps: tuple[float, float]) -> None:
    """Scales that LiteRT refuses, or with which its kernel loses all bits, need floats."""
    x = all_integers("int8").reshape(2, -1)
    model = convert(unary("HARD_SWISH", x, (steps[0], 0), (steps[1], 0))).model
    assert "HardSwish" in {node.op_type for node in model.graph.node}


def test_hard_swish_of_a_dynamic_size_equals_litert() -> None:
    m = Build()
    x = m.input([1, 3, 5], dtype="int8", scale=0.05, zero_point=3, shape_signature=[-1, -1, 5])
    m.output(*m.op("HARD_SWISH", [x], [[1, 3, 5]], scale=0.04, zero_point=-5))
    model = convert(m.bytes()).model
    for shape in ((1, 3, 5), (2, 7, 5)):
        array = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
        (want,) = run_tflite(m.bytes(), [array])
        assert difference(want, run_onnx(model, {model.graph.input[0].name: array})[0]) == ""


# Scales of two inputs and an output. The last two are from published models; ONNX Runtime rounds
# some of their sums otherwise. Ratios of small integers are avoided: they would give many halves.
TRIPLES = [
    (0.05, 0.05, 0.05),
    (0.0517213, 0.0331327, 0.0829519),
    (0.0113149, 0.0307243, 0.0041633),
    (0.1103171, 0.0213473, 0.3172319),
    (0.3783963937, 1.5000984054, 1.0),
    (1.0, 1.0039369447622486, 1.0),
]


@pytest.mark.parametrize("constant", [None, 0, 1])
@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("code", ["ADD", "SUB"])
def test_sums_equal_the_default_kernel(
    code: str, dtype: str, triple: tuple[float, ...], constant: int | None
) -> None:
    pair = grid(dtype)
    zeros = {"int8": [(-3, -5, 0), (-128, 0, -1)], "uint8": [(124, 130, 144), (0, 128, 127)]}
    for points in zeros[dtype]:
        *given, wanted = zip(triple, points, strict=True)
        data = binary(code, pair, given, wanted, constant)
        inputs = [array for i, array in enumerate(pair) if i != constant]
        kernels = count_optimized_nodes(check_exact(data, inputs))
        if code == "ADD" or constant == 1:
            assert kernels["QLinearAdd"] == 1
            assert kernels["Add"] + kernels["Sub"] == 0


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_random_scales_equal_the_default_kernel(seed: int) -> None:
    generator = np.random.default_rng(seed)
    pair = grid("int8")
    a, b = generator.uniform(0.01, 0.1, 2)
    steps = a, b, max(a, b) * generator.uniform(0.5, 2)
    zeros = generator.integers(-128, 127, 3).tolist()
    *given, wanted = zip(steps, zeros, strict=True)
    check_exact(binary("SUB" if seed % 4 == 0 else "ADD", pair, given, wanted), pair)


@pytest.mark.parametrize("scale", [(0.05 / 300, 0), (0.05 * 200, 0)])
def test_quotients_of_built_in_kernels_differ_by_a_step(scale: Scale) -> None:
    """For other quotients LiteRT runs built-in kernels, which round halves away from zero."""
    x = all_integers("int8").reshape(2, -1)
    check(unary("QUANTIZE", x, scale, (0.05, 3)), inputs=[x], steps=1)
    check(unary("LEAKY_RELU", x, scale, (0.05, 3), alpha=0.1), inputs=[x], steps=1)


def test_sums_of_halves_are_a_step_off() -> None:
    """With scales of 5/8 and 3/8 many sums are halves: float32 rounds them to even, XNNPACK up."""
    pair = grid("int8")
    data = binary("ADD", pair, [(0.05, 3), (0.03, -5)], (0.08, 7))
    model = convert(data, io_layout="tflite").model
    feeds = {port.name: array for port, array in zip(model.graph.input, pair, strict=True)}
    (want,), (have,) = run_default(data, pair), run_onnx(model, feeds)
    assert difference(want, have, steps=1) == ""
    assert 0 < np.mean(want != have) < 0.07


@pytest.mark.parametrize(("scale", "wanted"), [(15.13, 0.05), (0.05, 78.31)])
def test_sums_of_other_quotients_keep_their_scales(scale: float, wanted: float) -> None:
    """XNNPACK has no kernel for quotients from 2^8 on, and below 2^-10."""
    pair = grid("int8")
    data = binary("ADD", pair, [(scale, 1), (wanted, 2)], (wanted, 3))
    model = convert(data, activations="int8").model
    constants = [onnx.numpy_helper.to_array(each) for each in model.graph.initializer]
    assert {c.item() for c in constants if c.dtype == np.float32} == {
        float(np.float32(each)) for each in (scale, wanted)
    }
