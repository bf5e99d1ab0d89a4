"""targets/every_target.py: ONNX Runtime does not round these weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

STORED: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
WEIGHTS = 0.1 * np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
OPTIONS: dict[str, dict[str, Any]] = {
    "FULLY_CONNECTED": {},
    "CONV_2D": {"stride_h": 1, "stride_w": 1},
}


def make_layer(code: str, scale: float, activation: str = "NONE", *, pools: bool = False) -> bytes:
    """Return DEQUANTIZE, a layer of float weights, and QUANTIZE to a scale."""
    shape = [8, 64] if code == "FULLY_CONNECTED" else [1, 8, 8, 64]
    m = Build()
    (x,) = m.op("DEQUANTIZE", [m.input(shape, **STORED)], [m.tensor(shape, dtype="float32")])
    if pools:
        options: dict[str, Any] = {**OPTIONS["CONV_2D"], "filter_height": 2, "filter_width": 2}
        shape = [1, 7, 7, 64]
        (x,) = m.op("MAX_POOL_2D", [x], [shape], padding="VALID", **options)
    w = WEIGHTS if code == "FULLY_CONNECTED" else WEIGHTS.reshape(64, 1, 1, 64)
    inputs = [x, m.constant(w), m.constant(np.zeros(64, np.float32))]
    (y,) = m.op(code, inputs, [shape], fused_activation_function=activation, **OPTIONS[code])
    m.output(*m.op("QUANTIZE", [y], [m.tensor(shape, dtype="int8", scale=scale, zero_point=0)]))
    return m.bytes()


@pytest.mark.parametrize("forms", ["canonical", "fastest"])
@pytest.mark.parametrize("scale", [0.25, 0.3])
@pytest.mark.parametrize("code", OPTIONS)
def test_float_layers_between_integers_equal_litert(code: str, scale: float, forms: str) -> None:
    """A scale that is a power of two needs no Mul before QuantizeLinear; others need one."""
    for activation in ("NONE", "RELU"):
        data = make_layer(code, scale, activation)
        model = check(data, steps=0, default_kernels=True, forms=forms).model
        assert not count_optimized_nodes(model).keys() & {"QLinearConv", "QGemm"}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("target", ["onnxruntime", "openvino"])
def test_weights_are_kept_that_are_dequantized_at_load(target: str, *, has_bias: bool) -> None:
    """Data of one element cannot have several scales."""
    m, numbers = Build(), np.random.default_rng(2)
    x = m.input([1, 1], dtype="int8", scale=0.024, zero_point=-128)
    w = m.constant(numbers.integers(-127, 128, (16, 1)).astype(np.int8), scale=0.01, zero_point=0)
    b = m.constant(numbers.integers(-9999, 9999, 16).astype(np.int32), scale=0.00024, zero_point=0)
    made = m.tensor([1, 16], dtype="int8", scale=0.03, zero_point=-128)
    m.output(*m.op("FULLY_CONNECTED", [x, w, b] if has_bias else [x, w], [made]))
    model = check(m.bytes(), steps=1, target=target, weights="float").model
    assert "QGemm" not in count_optimized_nodes(model)


def test_nodes_that_move_elements_are_passed() -> None:
    check(make_layer("CONV_2D", 0.25, pools=True), steps=0, default_kernels=True)


def test_symmetric_data_have_one_scale() -> None:
    """Runtimes for symmetric integers take no other data."""
    model = convert(make_layer("CONV_2D", 0.25), target="tensorrt").model
    scales = {n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    assert scales
    assert all(not each.dims for each in model.graph.initializer if each.name in scales)


@pytest.mark.parametrize("opset", [10, 11, 12])
def test_weights_of_channels_and_biases_are_kept_in_older_opsets(opset: int) -> None:
    """DequantizeLinear has no axis before opset 13, so ONNX Runtime sees float weights."""
    m, generator = Build(), np.random.default_rng(1)
    scales = np.array([0.1, 0.2, 0.3])
    x = m.input([4, 5], dtype="int8", scale=0.1, zero_point=3)
    weights = generator.integers(-127, 128, (3, 5)).astype(np.int8)
    w = m.constant(weights, scale=scales, zero_point=[0, 0, 0], axis=0)
    numbers = generator.integers(-500, 500, 3).astype(np.int32)
    b = m.constant(numbers, scale=0.1 * scales, zero_point=[0, 0, 0], axis=0)
    made = m.tensor([4, 3], dtype="int8", scale=0.5, zero_point=0)
    m.output(*m.op("FULLY_CONNECTED", [x, w, b], [made]))
    check(m.bytes(), steps=1, opset=opset)
