"""Options for quantized layers: float models, older opsets; and biases of 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto

from tests.quantized.layers import Layer
from tests.quantized.test_hybrid import extremes, hybrid
from tests.quantized.test_pools import build_pool
from tests.quantized.test_products import (
    CASES,
    INT8,
    INT16,
    SCHEMES,
    SHAPES,
    check_exactly,
    check_layer,
)
from tests.support import Build, check, run_onnx, run_tflite
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.options import WeightType

if TYPE_CHECKING:
    from tests.support import Converted

PAIRS = {"DequantizeLinear", "QuantizeLinear"}


def nodes(result: Converted) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


def is_plain(result: Converted) -> bool:
    """Return whether the model has no quantized tensors."""
    graph = result.model.graph
    ports = {p.type.tensor_type.elem_type for p in (*graph.input, *graph.output)}
    held = {i.data_type for i in graph.initializer} - {TensorProto.INT64}
    return not PAIRS & nodes(result) and ports | held == {TensorProto.FLOAT}


@pytest.mark.parametrize(("shape", "scheme"), CASES)
def test_float_quantization_leaves_outputs_unrounded(shape: str, scheme: str) -> None:
    """With quantization="float" inputs and outputs are float32, and outputs are not rounded."""
    layer = Layer(SHAPES[shape], SCHEMES[scheme])
    result = convert(layer.model(), quantization="float", io_layout="tflite")
    assert is_plain(result)
    assert result.model.opset_import[0].version == 17
    assert distance(result, layer) < (0.02 if layer.scheme.y == "int16" else 0.001)


def distance(result: Converted, layer: Layer) -> float:
    """Return the largest error of the float output, in steps of the quantized output."""
    x, (scale_x, _, scale_y) = layer.inputs[0], layer.scales
    zero_x, _, zero_y = layer.scheme.zeros
    feeds = {result.inputs[0].name: (x.astype(np.float32) - zero_x) * np.float32(scale_x)}
    real = layer.real_output(x)
    made = (run_onnx(result.model, feeds, optimize=optimize)[0] for optimize in (True, False))
    return max(float(np.abs(y / scale_y + zero_y - real).max()) for y in made)


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_float_activations_are_within_a_step_of_litert(activation: str) -> None:
    layer = Layer(SHAPES["CONV_2D"], replace(INT8, y_scale=0.25), activation)
    result = convert(layer.model(), quantization="float", io_layout="tflite")
    assert is_plain(result)
    x, zero = layer.inputs[0], layer.scheme.zeros[0]
    feeds = {result.inputs[0].name: (x.astype(np.float32) - zero) * np.float32(layer.scales[0])}
    (y,) = run_onnx(result.model, feeds)
    (want,) = run_tflite(layer.model(), [x])
    real = (want.astype(np.float32) - layer.scheme.zeros[2]) * np.float32(0.25)
    assert np.abs(y - real).max() < 0.25


@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_float_pools_have_no_quantization_nodes(code: str, dtype: str) -> None:
    result = convert(build_pool(code, dtype), quantization="float")
    assert is_plain(result)
    assert nodes(result) <= {"AveragePool", "MaxPool", "Transpose", "Clip"}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4"])
@pytest.mark.parametrize("shape", ["CONV_2D", "FULLY_CONNECTED"])
def test_float_quantization_makes_integer_weights_floats(shape: str, dtype: str) -> None:
    """With quantization="float" integer weights of float data become floats, too."""
    layer = SHAPES[shape]
    data = hybrid(layer, dtype, per_channel=False)
    result = check(data, inputs=extremes(layer), quantization="float")
    assert is_plain(result)
    assert result.model.opset_import[0].version == 17


@pytest.mark.parametrize("quantization", ["qdq", "float"])
@pytest.mark.parametrize("shape", ["CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"])
def test_int64_biases_keep_the_digits_of_float32(shape: str, quantization: str) -> None:
    """int64 biases lose only digits that float32 lacks."""
    biases = np.linspace(-(2**40), 2**40, SHAPES[shape].w[0]).astype(np.int64)
    layer = Layer(SHAPES[shape], INT16, given=tuple(biases.tolist()))
    if quantization == "qdq":
        check_layer(layer)
        return
    result = convert(layer.model(), quantization="float", io_layout="tflite")
    assert distance(result, layer) < 0.02


def test_wide_biases_of_eight_bits_are_refused() -> None:
    """int64 biases of 8-bit layers are refused, because integer kernels add 32-bit biases."""
    m = Build()
    x = m.input([3, 5], dtype="int8", scale=0.5)
    w = m.constant(np.ones((2, 5), np.int8), scale=0.5)
    b = m.constant(np.array([1, 2**40], np.int64), scale=0.25)
    m.output(*m.op("FULLY_CONNECTED", [x, w, b], [[3, 2]], scale=1.0))
    with pytest.raises(ConversionError, match="must fit into 32 bits"):
        convert(m.bytes())


@pytest.mark.parametrize("shape", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize("opset", [13, 17, 20, 21, 23])
def test_8_bit_layers_equal_litert_in_each_opset(opset: int, shape: str) -> None:
    """8-bit layers work in each opset."""
    layer = Layer(SHAPES[shape], SCHEMES["int8 per channel"])
    assert check_layer(layer, opset=opset).model.opset_import[0].version == opset


@pytest.mark.parametrize(("opset", "stored"), [(13, "INT8"), (20, "INT8"), (21, "INT4")])
@pytest.mark.parametrize("shape", ["CONV_2D", "FULLY_CONNECTED"])
def test_4_bit_weights_are_packed_from_opset_21(shape: str, opset: int, stored: str) -> None:
    """4-bit weights are packed from opset 21 on, and stored as int8 before."""
    layer = Layer(SHAPES[shape], SCHEMES["int4 per channel"])
    graph = check_layer(layer, opset=opset).model.graph
    held = {i.data_type for i in graph.initializer if len(i.dims) > 1}
    assert held == {getattr(TensorProto, stored)}
    assert all(len(i.raw_data) < 400 for i in graph.initializer)
    check_exactly(layer)


@pytest.mark.parametrize("shape", ["CONV_2D", "FULLY_CONNECTED"])
def test_int16_layers_equal_litert_before_opset_21(shape: str) -> None:
    """int16 activations request opset 21; older opsets use Round, Clip and Cast."""
    layer = Layer(SHAPES[shape], INT16)
    assert convert(layer.model()).opset == 21
    for opset in (13, 20):
        model = check_layer(layer, opset=opset).model
        assert model.opset_import[0].version == opset


@pytest.mark.parametrize(("weights", "dequantized"), [("uint8", 2), ("int8", 3)])
def test_layers_share_dequantized_constants_except_int8_weights(
    weights: WeightType, dequantized: int
) -> None:
    """Two layers read one DequantizeLinear of a constant, but for int8 weights."""
    m = Build()
    x = m.input([2, 3], dtype="int8", scale=0.5)
    w = m.constant(np.arange(-7, 8, dtype=np.int8).reshape(5, 3), scale=0.25)
    b = m.constant(np.arange(5, dtype=np.int32), scale=0.125)
    for _ in range(2):
        m.output(*m.op("FULLY_CONNECTED", [x, w, b], [[2, 5]], dtype="int8", scale=1.9))
    graph = convert(m.bytes(), weights=weights).model.graph
    held = {each.name for each in graph.initializer}
    kinds = [node.op_type for node in graph.node if set(node.input) <= held]
    assert kinds == ["DequantizeLinear"] * dequantized
