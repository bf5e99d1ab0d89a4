"""targets/onnxruntime/forms/products/multiply_pixels.py: 1x1 convolutions next to a TRANSPOSE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.graph_text import check_pass, check_unchanged, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.products.multiply_pixels import multiply_pixels

NAME = "fused_activation_function"
BIAS = "[1.0, 1.0, 1.0, 1.0, 1.0]"
STEP: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


def convolve(m: Build, x: Tensor, channels: int, size: int = 1, **options: Any) -> Tensor:
    shape = (channels, size, size, x.shape[-1])
    filters = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    inputs = [x, m.constant(filters), m.constant(np.ones(channels, np.float32))]
    (y,) = m.op("CONV_2D", inputs, [[*x.shape[:-1], channels]], **{**STEP, **options})
    return y


def transpose(m: Build, x: Tensor) -> Tensor:
    order = m.constant(np.array([0, 1, 3, 2], np.int32))
    (y,) = m.op("TRANSPOSE", [x, order], [[x.shape[i] for i in (0, 1, 3, 2)]])
    return y


def mixer(*, size: int = 0, batch: int = 1, **options: Any) -> bytes:
    """Return a model that mixes channels, then pixels, after a convolution of some size."""
    m = Build()
    x = m.input([batch, 1, 9, 4])
    x = convolve(m, x, 4, size) if size else x
    y = convolve(m, convolve(m, x, 8, fused_activation_function="RELU"), 4, **options)
    (x,) = m.op("ADD", [x, y], [x.shape])
    y = transpose(m, x)
    y = convolve(m, convolve(m, y, 8), 9, **options)
    m.output(*m.op("ADD", [x, transpose(m, y)], [x.shape]))
    return m.bytes()


def test_convolution_becomes_a_dense_layer() -> None:
    m = Build()
    x = convolve(m, m.input([1, 1, 4, 3]), 5, fused_activation_function="RELU")
    m.output(transpose(m, x))
    before = f"""
        inputs %0: float32[1,1,4,3]
        %1: float32[1,1,4,5] = CONV_2D(%0, float32[5,1,1,3], {BIAS}, {NAME}=RELU)
        %2: float32[1,1,5,4] = TRANSPOSE(%1, [0, 1, 3, 2])
        return %2
    """
    after = before.replace("CONV_2D(%0, float32[5,1,1,3]", "FULLY_CONNECTED(%0, float32[5,3]")
    check_pass(multiply_pixels, read_graph(m.bytes()), before, after, NAME)


@pytest.mark.parametrize("forms", ["fastest", "canonical"])
def test_multiplied_pixels_equal_litert(forms: str) -> None:
    result = check(mixer(), forms=forms)
    convolutions = [node for node in result.model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == (4 if forms == "canonical" else 0)


@pytest.mark.parametrize("options", [{"size": 3}, {"batch": 2}], ids=str)
def test_pixel_products_beside_larger_convolutions_stay(options: dict[str, int]) -> None:
    """In a network with larger convolutions, and with a batch, products of pixels stay Conv."""
    result = check(mixer(**options))
    convolutions = [node for node in result.model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == (3 if "size" in options else 2)


def test_model_has_no_transpose() -> None:
    """The model has no Transpose."""
    assert not convert(mixer()).transposes
    assert convert(mixer(), forms="canonical").transposes


def test_convolutions_of_windows_and_dilations_stay() -> None:
    """Larger filters, strides and dilations stay convolutions."""
    for options in ({"size": 3}, {"dilation_h_factor": 2}):
        m = Build()
        m.output(transpose(m, convolve(m, m.input([1, 4, 6, 2]), 5, **options)))
        graph = read_graph(m.bytes())
        check_unchanged(multiply_pixels, graph)


def test_convolutions_without_transpose_stay() -> None:
    """Convolutions stay if no Transpose would be saved."""
    m = Build()
    x = convolve(m, m.input([1, 4, 6, 2]), 5)
    m.output(transpose(m, convolve(m, x, 3, 3)))
    graph = read_graph(m.bytes())
    check_unchanged(multiply_pixels, graph)
