"""Convolutions of float data by integers: processors choose between two forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tflite2onnx
from tests.golden.saturation import assume_exact_products, assume_saturation
from tests.quantized.layers import Shape
from tests.quantized.test_hybrid import extremes, hybrid, weights
from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes

_ONE: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
_TWO: dict[str, Any] = {"stride_h": 2, "stride_w": 2, "padding": "SAME"}
# With VNNI products of integers take 0.76 and 0.71 of the time of floats, with AVX2 1.3 and 1.2.
LAYERS = [
    Shape("CONV_2D", [1, 60, 60, 32], [64, 3, 3, 32], [1, 30, 30, 64], 0, _TWO),
    Shape("CONV_2D", [1, 20, 20, 256], [128, 1, 1, 256], [1, 20, 20, 128], 0, _ONE),
]


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("shape", LAYERS, ids=lambda s: f"{s.x} {s.w}")
def test_processors_choose_between_integers_and_floats(shape: Shape, *, is_exact: bool) -> None:
    data = hybrid(shape, "int8", per_channel=True)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    chosen = (assume_exact_products if is_exact else assume_saturation)(result.model)
    onnx.checker.check_model(chosen, full_check=True)
    left = count_optimized_nodes(chosen)
    assert (left["MatMulIntegerToFloat"], left["Conv"], left["If"]) == (is_exact, not is_exact, 0)


@pytest.mark.parametrize("options", [{"target": "web"}, {"weights": "uint8"}])
@pytest.mark.parametrize("shape", LAYERS, ids=lambda s: f"{s.x} {s.w}")
def test_no_processor_is_tested_for_one_type_of_weights(
    shape: Shape, options: dict[str, Any]
) -> None:
    model = tflite2onnx.convert(hybrid(shape, "int8", per_channel=True), **options).model
    assert "If" not in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("shape", LAYERS, ids=lambda s: f"{s.x} {s.w}")
def test_both_forms_read_the_same_bytes(shape: Shape) -> None:
    data = hybrid(shape, "int8", per_channel=True)
    plain = tflite2onnx.convert(data, forms="canonical").model
    size = tflite2onnx.convert(data).model.ByteSize()
    assert size < plain.ByteSize() + 5000


def test_convolutions_of_floats_beside_products_move_no_channels() -> None:
    """A depthwise convolution needs channels first, the others take either order."""
    m, scale = Build(), np.full(64, 0.01, np.float32)
    x = m.input([1, 16, 16, 64])
    for code, window in (("CONV_2D", 3), ("DEPTHWISE_CONV_2D", 3), ("CONV_2D", 1)):
        axis = 3 if code == "DEPTHWISE_CONV_2D" else 0
        shape = (1, window, window, 64) if axis else (64, window, window, 64)
        w = m.constant(weights("int8", *shape), dtype="int8", scale=scale, axis=axis)
        bias = m.constant(np.zeros(64, np.float32))
        more: dict[str, Any] = {"depth_multiplier": 1} if axis else {}
        (x,) = m.op(code, [x, w, bias], [[1, 16, 16, 64]], **_ONE, **more)
    m.output(x)
    result = check(m.bytes(), default_kernels=True, tolerance=0.05)
    left = count_optimized_nodes(result.model)
    assert (left["MatMulIntegerToFloat"], left["Conv"], left["Transpose"]) == (1, 2, 0)
