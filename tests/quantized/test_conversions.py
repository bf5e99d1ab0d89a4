"""QUANTIZE, DEQUANTIZE, CAST and FAKE_QUANT, and graphs that are partly quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.quantized.layers import LIMITS
from tests.quantized.values import (
    add_input,
    all_integers,
    check_integers,
    output_tensor,
    scales,
    unary,
)
from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tests.support.runtimes import session
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.verification import verify

if TYPE_CHECKING:
    from tests.support import Converted

Array = np.ndarray[Any, Any]

TYPES = ("int8", "uint8", "int16")
RATIOS = (1.0, 0.7, 3.3)


def node_types(result: Converted) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


def halfway_numbers() -> Array:
    """Return numbers beyond all ranges, and numbers halfway between two steps of 0.05."""
    halves = (np.arange(-140, 140) + 0.5) * np.float32(0.05)
    wide = np.linspace(-40, 40, 999, dtype=np.float32)
    return np.append(halves, wide).astype(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_quantize_is_within_a_step_of_litert(dtype: str, ratio: float) -> None:
    """Outputs may differ by a step, because LiteRT rounds halves away from zero, ONNX to even."""
    m, ((step, zero),), x = Build(), scales(dtype, 0.05), halfway_numbers()
    y = output_tensor(m, x.shape, dtype, (step * ratio, zero))
    m.output(*m.op("QUANTIZE", [m.input(x.shape)], [y]))
    check(m.bytes(), inputs=[x], steps=1)


@pytest.mark.parametrize("dtype", TYPES)
def test_quantize_along_an_axis_is_within_a_step(dtype: str) -> None:
    m, x = Build(), np.random.default_rng(0).uniform(-5, 5, (3, 5, 7)).astype(np.float32)
    steps = np.array([0.01, 0.02, 0.03, 0.05, 0.1], np.float32)
    zeros = np.arange(1, 6) * (dtype != "int16")
    y = m.tensor(x.shape, dtype=dtype, scale=steps, zero_point=zeros, axis=1)
    m.output(*m.op("QUANTIZE", [m.input(x.shape)], [y]))
    check(m.bytes(), inputs=[x], steps=1)


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_quantize_to_four_bits_equals_litert(dtype: str) -> None:
    """QUANTIZE to int4 and DEQUANTIZE, because no runtime returns int4 arrays."""
    m, x = Build(), halfway_numbers()
    (y,) = m.op("QUANTIZE", [m.input(x.shape)], [output_tensor(m, x.shape, dtype, (0.7, 1))])
    m.output(*m.op("DEQUANTIZE", [y], [m.tensor(x.shape)]))
    check(m.bytes(), inputs=[x])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("int8", "int8"),
        ("int8", "uint8"),
        ("int8", "int16"),
        ("uint8", "int8"),
        ("uint8", "uint8"),
        ("uint8", "int16"),
        ("int16", "int8"),
        ("int16", "int16"),
    ],
)
@pytest.mark.parametrize("ratio", RATIOS)
def test_requantize_is_within_a_step_of_litert(source: str, target: str, ratio: float) -> None:
    (given,), ((step, zero),) = scales(source, 0.05), scales(target, 0.05)
    x = all_integers(source).reshape(2, -1)
    check_integers(unary("QUANTIZE", x, given, (step * ratio, zero), target), [x], steps=1)


@pytest.mark.parametrize("bits", [15, 16, 24])
def test_requantize_of_int16_saturates_where_litert_wraps(bits: int) -> None:
    """LiteRT shifts left in 32 bits, which wraps from a quotient of scales of 2^16 on."""
    x = np.array([[-32768, -16385, -2, -1, 0, 1, 2, 16385, 32767]], np.int16)
    data = unary("QUANTIZE", x, (2.0**bits, 0), (1.0, 0), "int16")
    result = convert(data)
    (y,) = session(result.model, optimize=True).run(None, {result.inputs[0].name: x})
    assert (y == np.clip(x * 2.0**bits, -32768, 32767)).all()
    assert verify(data, result, inputs={result.inputs[0].name: x}).ok is (bits < 16)


@pytest.mark.parametrize("zero", [0, -32768])
@pytest.mark.parametrize("scale", [(0.01, 0.001), (0.01, 0.03), (4.94e-4, 1.49e-7)])
def test_quantize_to_int32_is_within_a_step(scale: tuple[float, float], zero: int) -> None:
    """QUANTIZE to int32, which QuantizeLinear lacks; results exceed the digits of float32."""
    x = all_integers("int16").reshape(2, -1)
    check(unary("QUANTIZE", x, (scale[0], zero), (scale[1], 0), "int32"), inputs=[x], steps=1)


@pytest.mark.parametrize("target", ["int8", "int16"])
@pytest.mark.parametrize("step", [1e-9, 1e-6, 0.01])
def test_quantize_of_int32_is_within_a_step(target: str, step: float) -> None:
    """int32 within the range in which the kernel does not wrap around."""
    generator, (wanted,) = np.random.default_rng(0), scales(target, 0.05)
    bits = 31 - max(int(np.ceil(np.log2(step / wanted[0]))), 0)
    x = generator.integers(-(2**bits), 2**bits, (10, 100)) >> generator.integers(0, bits, (10, 100))
    x = np.append(x, [[-(2**bits), 2**bits - 1, *[0] * 98]], axis=0).astype(np.int32)
    check(unary("QUANTIZE", x, (step, 0), wanted, target), inputs=[x], steps=1)


def test_int32_between_two_scales_is_within_a_step() -> None:
    """int32 as an activation between int16 and int8."""
    m, x = Build(), all_integers("int16").reshape(2, -1)
    (wide,) = m.op(
        "QUANTIZE", [add_input(m, x, (0.01, 0))], [output_tensor(m, x.shape, "int32", (1e-5, 0))]
    )
    m.output(*m.op("QUANTIZE", [wide], [output_tensor(m, x.shape, "int8", (3.0, -7))]))
    check_integers(m.bytes(), [x], steps=1)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (("float32", None), ("int32", (1.0, 0)), "got float32 to int32"),
        (
            ("int32", (1.0, 5)),
            ("int8", (1.0, 0)),
            "must have the zero point 0, because the kernel ignores another",
        ),
        (("int32", None), ("int8", (1.0, 0)), "got int32 to int8"),
        (("int8", (1.0, 0)), ("int8", None), "got int8 to int8"),
    ],
)
def test_quantize_refuses_odd_types_and_zero_points(source: Any, target: Any, reason: str) -> None:
    m = Build()
    x, y = output_tensor(m, [3], *source), output_tensor(m, [3], *target)
    m.model().subgraphs[0].inputs.append(x.index)
    m.output(*m.op("QUANTIZE", [x], [y]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize("dtype", TYPES)
def test_dequantize_equals_litert_for_each_storage(dtype: str) -> None:
    m, (scale,), x = Build(), scales(dtype, 0.05), all_integers(dtype).reshape(2, -1)
    m.output(*m.op("DEQUANTIZE", [add_input(m, x, scale)], [m.tensor(x.shape)]))
    check_all_ways(m, x)


def check_all_ways(m: Build, x: Array) -> None:
    """Compare an int8 model with float outputs with LiteRT, for each storage of int8."""
    for activations in ("auto", "int8", "uint8"):
        check(m.bytes(), inputs=[x], activations=activations)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "int8", "uint8"])
@pytest.mark.parametrize("along", [None, 0, 1])
def test_dequantized_constants_equal_litert(dtype: str, along: int | None) -> None:
    m, (low, high) = Build(), LIMITS.get(dtype, (0, 15))
    data = np.random.default_rng(0).integers(low, high, (4, 6), endpoint=True)
    count = 1 if along is None else data.shape[along]
    c = m.constant(
        data.astype(np.uint8 if dtype.startswith("u") else np.int8),
        dtype=dtype,
        scale=np.linspace(0.1, 0.3, count),
        zero_point=0,
        axis=along or 0,
    )
    (real,) = m.op("DEQUANTIZE", [c], [m.tensor([4, 6])])
    m.output(*m.op("ADD", [real, m.input([4, 6])], [m.tensor([4, 6])]))
    check(m.bytes(), seeds=[0])


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "int32", "float32"])
def test_cast_takes_integers_as_they_are(source: str, target: str) -> None:
    """CAST ignores scales, for each storage of int8."""
    m, (scale,), x = Build(), scales(source, 0.05), all_integers(source).reshape(2, -1)
    m.output(*m.op("CAST", [add_input(m, x, scale)], [m.tensor(x.shape, dtype=target)]))
    check_all_ways(m, x)


RANGES = [
    (-1, 1, 8),
    (0, 6, 8),
    (-0.3, 2.7, 8),
    (-1, 1, 4),
    (0, 1, 2),
    (-5, 5, 16),
    (-2, 0, 8),
    (-8, 7.9375, 8),
    (-0.1, 6, 3),
]


@pytest.mark.parametrize(("low", "high", "bits"), RANGES)
def test_fake_quantization_equals_litert_exactly(low: float, high: float, bits: int) -> None:
    """FAKE_QUANT equals LiteRT's exactly, also for halves."""
    m, fine = Build(), np.linspace(low, high, 2 ** min(bits, 10) * 2 + 1)
    beyond = np.random.default_rng(0).uniform(low - 1, high + 1, 1000)
    x = np.concatenate([fine, beyond, [0, low, high]]).astype(np.float32)
    options: dict[str, Any] = {"min": low, "max": high, "num_bits": bits}
    m.output(*m.op("FAKE_QUANT", [m.input(x.shape)], [x.shape], **options))
    check(m.bytes(), inputs=[x], tolerance=0)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"min": 0, "max": 1, "num_bits": 8, "narrow_range": True}, "narrow_range must be false"),
        ({"min": 0, "max": 0, "num_bits": 8}, "got 8 bits from 0.0 to 0.0"),
        ({"min": 1, "max": 2, "num_bits": 8}, "got 8 bits from 1.0 to 2.0"),
        ({"min": 0, "max": 1, "num_bits": 1}, "got 1 bits"),
        ({"min": 0, "max": 1, "num_bits": 17}, "got 17 bits"),
    ],
)
def test_fake_quantization_refuses_invalid_ranges_and_bits(
    options: dict[str, Any], reason: str
) -> None:
    m = Build()
    m.output(*m.op("FAKE_QUANT", [m.input([3])], [[3]], **options))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize(
    "options", [{}, {"activations": "int8"}, {"quantization": "float"}], ids=str
)
def test_integers_inside_a_float_graph_are_fused(options: dict[str, Any]) -> None:
    """Operators between QUANTIZE and DEQUANTIZE are fused into integer kernels."""
    m, shape = Build(), [3, 37]
    (q,) = m.op("QUANTIZE", [m.input(shape)], [output_tensor(m, shape, "int8", (0.06, 3))])
    (s,) = m.op("ADD", [q, q], [output_tensor(m, shape, "int8", (0.13, -5))])
    (s,) = m.op("LOGISTIC", [s], [output_tensor(m, shape, "int8", (1 / 256, -128))])
    m.output(*m.op("DEQUANTIZE", [s], [m.tensor(shape)]))
    x = np.random.default_rng(0).integers(-120, 120, shape).astype(np.float32) / 16
    # At most one step of the output, which is 1/256 of its range. Floats lack the rounding of the
    # sum by half a step, which LOGISTIC multiplies by 1/4 at most.
    tolerance = 1.01 / 200 + (0.13 / 8 if options.get("quantization") == "float" else 0)
    result = check(m.bytes(), inputs=[x], tolerance=tolerance, **options)
    if not options:
        fused = count_optimized_nodes(result.model)
        assert (fused["QLinearAdd"], fused["QLinearSigmoid"]) == (1, 1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("activations", ["auto", "int8", "uint8"])
def test_inputs_and_outputs_keep_their_type(dtype: str, activations: str) -> None:
    """Inputs and outputs have the file's type for each storage of int8."""
    given, *_, wanted = scales(dtype, 0.05, 0.03, 0.05)
    m, x = Build(), all_integers(dtype).reshape(2, -1)
    a = add_input(m, x, given)
    (b,) = (
        m.op("TANH", [a], [output_tensor(m, x.shape, dtype, (2.0**-15, 0))])
        if dtype == "int16"
        else (m.op("HARD_SWISH", [a], [output_tensor(m, x.shape, dtype, wanted)]))
    )
    (c,) = m.op(
        "RESHAPE", [b, m.constant(np.array([x.size], np.int32))], [[x.size]], new_shape=[x.size]
    )
    m.output(a, b, c)
    # See test_int16_functions_are_close_to_real_results for the steps of TANH.
    result = check(
        m.bytes(), inputs=[x], steps=3 if dtype == "int16" else 1, activations=activations
    )
    assert {port.dtype for port in (*result.inputs, *result.outputs)} == {dtype}


def test_residual_block_becomes_integer_kernels() -> None:
    """A residual block with int8 stored as uint8 is fused into integer kernels."""
    m, generator = Build(), np.random.default_rng(0)
    weights = generator.integers(-127, 128, (3, 3, 3, 3)).astype(np.int8)
    x = m.input([1, 5, 7, 3], dtype="int8", scale=0.05, zero_point=3)
    w = m.constant(weights, scale=0.01)
    b = m.constant(generator.integers(-900, 900, 3).astype(np.int32), scale=0.0005)
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    y = output_tensor(m, [1, 5, 7, 3], "int8", (0.2, -5))
    m.op("CONV_2D", [x, w, b], [y], fused_activation_function="RELU", **options)
    m.output(*m.op("ADD", [x, y], [output_tensor(m, [1, 5, 7, 3], "int8", (0.23, 7))]))
    array = generator.integers(-128, 128, (1, 5, 7, 3)).astype(np.int8)
    result = check_integers(
        m.bytes(), [array], steps=2
    )  # one step of the convolution, one of the sum
    fused = count_optimized_nodes(result.model)
    assert (fused["QLinearConv"], fused["QLinearAdd"]) == (1, 1)
