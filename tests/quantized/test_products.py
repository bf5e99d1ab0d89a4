"""Convolutions and matrix products of stored integers: every type, against LiteRT and exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.quantized.layers import Layer, Scheme, Shape
from tests.support import Build, check, run_onnx
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import ConversionError
from tflite2onnx.convert import convert
from tflite2onnx.options import ACTIVATIONS, WEIGHTS

if TYPE_CHECKING:
    from tests.support import Converted

UINT8 = Scheme("uint8", "uint8", "uint8", "int32", (131, 120, 7))
INT8 = Scheme("int8", "int8", "int8", "int32", (3, 0, -5))
INT16 = Scheme("int16", "int8", "int16", "int64")
SCHEMES = {
    "uint8": UINT8,
    "int8": INT8,
    "int8 per channel": replace(INT8, per_channel=True),
    "int4": replace(INT8, w="int4"),
    "int4 per channel": replace(INT8, w="int4", per_channel=True),
    "int2": replace(INT8, w="int2"),
    "int16": INT16,
    "int16 per channel": replace(INT16, per_channel=True),
    "int16 and int32": replace(INT16, bias="int32", per_channel=True),
    "int16 and int4": replace(INT16, w="int4", per_channel=True),
    "int16 by int16": replace(INT16, w="int16", bias="int32"),
    "uint8 to int16": replace(UINT8, y="int16", zeros=(131, 120, 0)),
    "int8 to int16": replace(INT8, y="int16", zeros=(3, 0, 0)),
    "no bias": replace(INT8, bias=None),
    "no bias, int16": replace(INT16, bias=None),
}

STEPS = {"stride_h": 2, "stride_w": 1, "padding": "SAME"}
WINDOW = {**STEPS, "dilation_h_factor": 1, "dilation_w_factor": 1}
SHAPES = {
    "CONV_2D": Shape("CONV_2D", [2, 5, 7, 3], [11, 3, 2, 3], [2, 3, 7, 11], 0, WINDOW),
    "groups": Shape("CONV_2D", [2, 5, 7, 6], [10, 3, 2, 3], [2, 3, 7, 10], 0, WINDOW),
    "DEPTHWISE_CONV_2D": Shape(
        "DEPTHWISE_CONV_2D", [2, 5, 7, 3], [1, 3, 2, 6], [2, 3, 7, 6], 3, WINDOW
    ),
    "TRANSPOSE_CONV": Shape("TRANSPOSE_CONV", [2, 3, 7, 5], [11, 3, 2, 5], [2, 5, 7, 11], 0, STEPS),
    "FULLY_CONNECTED": Shape("FULLY_CONNECTED", [3, 13], [11, 13], [3, 11]),
    "kept axes": Shape(
        "FULLY_CONNECTED", [2, 3, 13], [11, 13], [2, 3, 11], 0, {"keep_num_dims": True}
    ),
    "flattened": Shape("FULLY_CONNECTED", [2, 3, 5, 7], [11, 105], [2, 11]),
}
# Schemes that LiteRT's kernels support.
EVERY = ("uint8", "int8", "int8 per channel", "int16", "int16 per channel")
NARROW = ("int4", "int4 per channel")
TAKEN = {
    "CONV_2D": (*EVERY, *NARROW, "int16 and int32", "int16 and int4"),
    "groups": (*EVERY, *NARROW, "int16 and int4"),
    "DEPTHWISE_CONV_2D": (*EVERY, *NARROW),
    "TRANSPOSE_CONV": (*EVERY, "int16 and int32", "no bias", "no bias, int16"),
    "FULLY_CONNECTED": tuple(s for s in SCHEMES if s != "int8 to int16"),
    "kept axes": (*EVERY, *NARROW, "no bias", "no bias, int16"),
    "flattened": (*EVERY, *NARROW, "no bias"),
}
CASES = [(shape, scheme) for shape, schemes in TAKEN.items() for scheme in schemes]
# Schemes that the kernels accept but misread as int8: packed int4 and int16 weights.
MISREAD = [
    ("DEPTHWISE_CONV_2D", "int16 and int4"),
    ("CONV_2D", "int16 by int16"),
]
# ONNX Runtime's fused kernels for 8-bit layers; transposed convolutions have none.
KERNELS = {"CONV_2D": "QLinearConv", "DEPTHWISE_CONV_2D": "QLinearConv", "FULLY_CONNECTED": "QGemm"}


def check_layer(layer: Layer, **options: Any) -> Converted:
    """Compare a layer with LiteRT, and with the correctly rounded result.

    LiteRT may be a step off: it multiplies accumulators by a fixed-point number (of 16 bits for
    int16 data), and some kernels round twice, once for each half of the shift.
    """
    data = layer.model()
    for x in layer.inputs:
        result = check(data, inputs=[x], steps=1, random_layouts=[0], **options)
    check_exactly(layer, **options)
    return result


def check_exactly(layer: Layer, **options: Any) -> None:
    """Require that the output is the correctly rounded result.

    The output is computed in float32: within a thousandth of a step from a half (a hundredth for 16
    bits) it may be rounded to either side. With exact scales it must be equal.
    """
    doubt = 0.01 if layer.scheme.y == "int16" else 0.001
    for x in layer.inputs:
        for y in run_model(layer.model(), x, **options):
            if layer.scheme.exact and layer.scheme.y != "int16":
                np.testing.assert_array_equal(y, layer.rounded_output(x))
            assert np.abs(y - layer.real_output(x)).max() < 0.5 + doubt


def run_model(data: bytes, x: Any, **options: Any) -> list[Any]:
    """Return the output with all optimizations of ONNX Runtime and with none."""
    model = convert(data, io_layout="tflite", **options).model
    feeds = {model.graph.input[0].name: x}
    return [run_onnx(model, feeds, optimize=optimize)[0] for optimize in (True, False)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("shape", "scheme"), CASES)
def test_every_type_agrees_with_litert(shape: str, scheme: str, *, exact: bool) -> None:
    """Random integers and extremes; with exact scales every eighth result is a tie."""
    layer = Layer(SHAPES[shape], replace(SCHEMES[scheme], exact=exact))
    check_layer(layer)


@pytest.mark.parametrize(("shape", "scheme"), MISREAD)
def test_weights_that_litert_misreads_are_refused(shape: str, scheme: str) -> None:
    with pytest.raises(ConversionError, match="which LiteRT's kernel reads as int8; quantize"):
        convert(Layer(SHAPES[shape], SCHEMES[scheme]).model())


def test_layer_of_int8_that_litert_reads_as_uint8_is_exact() -> None:
    """The kernel reads int8 data as uint8 if the output is int16."""
    check_exactly(Layer(SHAPES["FULLY_CONNECTED"], SCHEMES["int8 to int16"]))


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("scheme", ["uint8", "int8", "int16"])
@pytest.mark.parametrize("shape", KERNELS)
def test_activations_become_a_clamp(shape: str, scheme: str, activation: str) -> None:
    """A Clip or Max is added if the output range does not imply the activation."""
    layer = Layer(SHAPES[shape], SCHEMES[scheme], activation)
    result = check_layer(layer)
    clamps = {"Clip", "Max"} & {node.op_type for node in result.model.graph.node}
    assert clamps


@pytest.mark.parametrize("activation", ["NONE", "RELU", "RELU6"])
@pytest.mark.parametrize("shape", KERNELS)
def test_activations_that_the_range_implies_need_no_node(shape: str, activation: str) -> None:
    """If the output range implies the activation, no node is added, and the layer is fused."""
    scheme = replace(INT8, zeros=(3, 0, -128), y_scale=6 / 255)
    model = check_layer(Layer(SHAPES[shape], scheme, activation)).model
    assert not {"Clip", "Max", "Relu"} & {node.op_type for node in model.graph.node}
    assert count_optimized_nodes(model)[KERNELS[shape]] == 1


@pytest.mark.parametrize("weights", [kind for kind in WEIGHTS if kind != "float"])
# uint16 is around the products of the target qnn only.
@pytest.mark.parametrize("activations", [kind for kind in ACTIVATIONS if kind != "uint16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_storage_options_keep_types_of_inputs_and_outputs(
    shape: str, activations: str, weights: str
) -> None:
    """Each storage option gives correct outputs; inputs and outputs keep their type.

    int8 weights must be small to be correct on every processor. Float weights are for other
    runtimes: ONNX Runtime rounds them again (WeightBiasQuantization).
    """
    options = {"activations": activations, "weights": weights}
    scheme = replace(INT8, exact=weights == "int8")
    model = check_layer(Layer(SHAPES[shape], scheme), **options).model
    quantized = {n.op_type for n in model.graph.node if n.op_type == "QuantizeLinear"}
    assert quantized
    ports = (*model.graph.input, *model.graph.output)
    assert {p.type.tensor_type.elem_type for p in ports} == {TensorProto.INT8}


@pytest.mark.parametrize("scheme", ["uint8", "int8", "int8 per channel", *NARROW])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "TRANSPOSE_CONV"])
def test_layers_become_one_integer_kernel(shape: str, scheme: str) -> None:
    """An 8-bit layer is one integer kernel; other nodes only convert between int8 and uint8."""
    layer = Layer(SHAPES[shape], SCHEMES[scheme])
    left = count_optimized_nodes(convert(layer.model()).model)
    assert left.pop(KERNELS[layer.shape.code]) == 1
    ends = 0 if layer.scheme.x == "uint8" else 2
    pairs = {"DequantizeLinear": ends, "QuantizeLinear": ends}
    assert {n: c for n, c in left.items() if n not in ("Reshape", "Transpose")} == {
        n: c for n, c in pairs.items() if c
    }


def test_output_with_several_scales_is_reshaped_before_them() -> None:
    """The scales belong to axis 0 of the output, not to its rows; LiteRT refuses this output."""
    m, random = Build(), np.random.default_rng(0)
    weights = random.integers(-7, 7, [7, 13], np.int8, endpoint=True)
    x = m.input([2, 3, 5, 13], dtype="int16", scale=0.0002)
    w = m.constant(weights, dtype="int4", scale=0.005)
    scales = np.array([0.0001, 0.0003], np.float32)
    y = m.tensor([2, 3, 5, 7], dtype="int16", scale=scales, axis=0)
    m.output(*m.op("FULLY_CONNECTED", [x, w, None], [y], keep_num_dims=True))
    data = random.integers(-30000, 30000, [2, 3, 5, 13], np.int16)
    real = data.astype(np.float64) @ weights.T * (0.0002 * 0.005)
    for actual in run_model(m.bytes(), data):
        assert np.abs(actual - real / scales.reshape(2, 1, 1, 1)).max() < 0.51
