"""Convolutions of few filters compute blocks of pixels; see convolve_pixel_blocks.py."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support import Build, check
from tests.support.graph_text import assert_rewritten, check_unchanged, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.convolve_pixel_blocks import (
    convolve_pixel_blocks,
)


def model(
    outputs: int,
    *,
    size: tuple[int, int] = (48, 64),
    window: tuple[int, int] = (3, 3),
    channels: int = 32,
    groups: int = 1,
    **options: Any,
) -> bytes:
    m, generator = Build(), np.random.default_rng(0)
    filters = generator.standard_normal((outputs, *window, channels // groups)).astype(np.float32)
    b = m.constant(np.arange(outputs, dtype=np.float32))
    words: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME", **options}
    lost = [n - 1 if words["padding"] == "VALID" else 0 for n in window]
    shape = [
        1,
        *(-(-(n - k) // words["stride_h"]) for n, k in zip(size, lost, strict=True)),
        outputs,
    ]
    inputs = [m.input([1, *size, channels]), m.constant(filters), b]
    m.output(*m.op("CONV_2D", inputs, [shape], **words))
    return m.bytes()


def types(model: bytes, **options: Any) -> list[str]:
    nodes = convert(model, **options).model.graph.node
    return [node.op_type for node in nodes if node.op_type not in ("Transpose", "Relu")]


@pytest.mark.parametrize(
    ("outputs", "block", "options"),
    [
        (1, 2, {}),
        (1, 4, {"channels": 16, "window": (5, 4)}),
        (2, 2, {"fused_activation_function": "RELU"}),
        (3, 2, {"padding": "VALID", "size": (50, 66)}),
        (3, 2, {"window": (4, 2), "padding": "VALID", "size": (51, 65)}),
        (4, 2, {"window": (9, 9), "channels": 8}),
    ],
    ids=str,
)
def test_blocks_of_pixels_equal_single_pixels(
    outputs: int, block: int, options: dict[str, Any]
) -> None:
    """Blocks of pixels are equal to the pixels one by one, whatever the padding is."""
    data = model(outputs, **options)
    result: Any = check(data)
    (node,) = (node for node in result.model.graph.node if node.op_type == "DepthToSpace")
    assert {each.name: each.i for each in node.attribute}["blocksize"] == block


def test_dynamic_batch_computes_blocks() -> None:
    data = model(3)
    images = np.random.default_rng(1).standard_normal((3, 48, 64, 32)).astype(np.float32)
    shapes = {"tensor_1": ["batch", 48, 64, 32]}
    result: Any = check(data, inputs=[images], shapes=shapes, random_layouts=())
    assert "DepthToSpace" in [node.op_type for node in result.model.graph.node]


@pytest.mark.parametrize(
    "options",
    [
        {"window": (1, 1)},
        {"window": (1, 3)},
        {"stride_h": 2, "stride_w": 2},
        {"dilation_h_factor": 2, "dilation_w_factor": 2},
        {"size": (47, 63)},
        {"size": (4, 4)},
        {"groups": 2, "outputs": 2},
        {"outputs": 16},
        {"channels": 2048},
    ],
    ids=str,
)
def test_convolutions_that_gain_no_time_in_blocks_stay(options: dict[str, Any]) -> None:
    """Convolutions stay if no block fits, or if it would not be faster."""
    graph = read_graph(model(**{"outputs": 3, **options}))
    check_unchanged(convolve_pixel_blocks, graph)


@pytest.mark.parametrize("scale", [0.1, [0.1, 0.2, 0.4]])
def test_integer_filters_keep_scales_and_are_stored_once(scale: Any) -> None:
    """Filters of integers keep their scales; the file stores them once."""
    m, generator = Build(), np.random.default_rng(0)
    integers = generator.integers(-127, 128, (3, 3, 3, 32)).astype(np.int8)
    bias = m.constant(np.arange(3, dtype=np.float32))
    inputs = [m.input([1, 48, 64, 32]), m.constant(integers, scale=scale), bias]
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    m.output(*m.op("CONV_2D", inputs, [[1, 48, 64, 3]], **options))
    result: Any = check(m.bytes(), dynamic_range="float", tolerance=0.02)
    stored = [i for i in result.model.graph.initializer if i.data_type == TensorProto.INT8]
    assert (3, 32, 3, 3) in {tuple(i.dims) for i in stored}
    assert sum(math.prod(i.dims) for i in stored) < 2 * integers.size
    nodes = Counter(node.op_type for node in result.model.graph.node)
    assert (nodes["Pad"], nodes["Concat"], nodes["DepthToSpace"]) == (4, 1, 1)


def test_convolutions_of_integer_images_stay() -> None:
    m = Build()
    x = m.input([1, 64, 64, 32], dtype="int8", scale=0.1)
    filters = m.constant(np.ones((3, 3, 3, 32), np.int8), scale=0.1)
    m.output(*m.op("CONV_2D", [x, filters, None], [[1, 64, 64, 3]], dtype="int8", scale=1.0))
    check_unchanged(convolve_pixel_blocks, read_graph(m.bytes()))


def test_canonical_forms_and_dynamic_sizes_stay() -> None:
    data = model(3)
    assert types(data, forms="canonical") == ["Conv"]
    assert types(data, shapes={"tensor_1": [1, "height", "width", 32]}) == ["Conv"]


def test_convolution_becomes_blocks_and_depth_to_space() -> None:
    assert_rewritten(
        convolve_pixel_blocks,
        """
        inputs x: float32[1,48,64,32]
        y: float32[1,48,64,3] = CONV_2D(x, float32[3,3,3,32], float32[3], padding=SAME,
            stride_h=1, stride_w=1, fused_activation_function=RELU)
        return y
        """,
        """
        inputs x: float32[1,48,64,32]
        blocks: float32[1,24,32,12] = CONV_2D(x, float32[12,4,4,32], float32[12], padding=VALID,
            stride_h=2, stride_w=2, fused_activation_function=RELU)
        y: float32[1,48,64,3] = DEPTH_TO_SPACE(blocks, block_size=2)
        return y
        """,
    )
