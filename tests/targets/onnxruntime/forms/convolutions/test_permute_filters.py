"""Channels that are moved after a convolution become filters in this sequence."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.graph_text import check_unchanged, parse_graph, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.convolutions.permute_filters import permute_filters

STEPS: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
PIXELS, CHANNELS = 6, 16


def build(shape: list[int], order: list[int], weights: str = "float32", *, batch: int = 1) -> bytes:
    """Return a model of a convolution, and of RESHAPE, TRANSPOSE and RESHAPE of its result."""
    m, generator = Build(), np.random.default_rng(0)
    image = [1, 1, PIXELS, CHANNELS]
    x = m.input(image, shape_signature=[batch, *image[1:]])
    filters = generator.normal(0, 0.1, [CHANNELS, 1, 3, CHANNELS]).astype(np.float32)
    if weights == "float32":
        w = m.constant(filters)
    else:
        scale = np.abs(filters).max((1, 2, 3)) / 127
        stored = np.round(filters / scale.reshape(-1, 1, 1, 1)).astype(np.int8)
        w = m.constant(stored, scale=scale.tolist(), axis=0)
    b = m.constant(generator.normal(0, 1, CHANNELS).astype(np.float32))
    words = {**STEPS, "fused_activation_function": "RELU"}
    (y,) = m.op("CONV_2D", [x, w, b], [image], **words)
    (y,) = m.op("RESHAPE", [y], [shape], new_shape=[-1, *shape[1:]])
    made = [shape[axis] for axis in order]
    (y,) = m.op("TRANSPOSE", [y, m.constant(np.array(order, np.int32))], [made])
    result = [1, 1, 2 * PIXELS, CHANNELS // 2]
    (y,) = m.op("RESHAPE", [y], [result], new_shape=[-1, *result[1:]])
    m.output(y)
    return m.bytes()


SPLIT, SWAPPED = [1, 1, PIXELS, CHANNELS // 2, 2], [0, 1, 2, 4, 3]


@pytest.mark.parametrize("batch", [1, -1])
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_channels_of_a_pixel_become_filters(weights: str, batch: int) -> None:
    """Half of the channels become the next pixel; a Transpose is left before and after Conv."""
    data = build(SPLIT, SWAPPED, weights, batch=batch)
    check(data, tolerance=1e-5 if weights == "float32" else 0.01)
    result = convert(data, io_layout="tflite")
    nodes = Counter(node.op_type for node in result.model.graph.node)
    assert (nodes["Transpose"], nodes["Conv"]) == (2, 1)


def test_pixels_that_move_keep_the_transpose() -> None:
    data = build([1, PIXELS // 2, 2, CHANNELS // 2, 2], [0, 2, 1, 4, 3])
    graph = read_graph(data)
    assert permute_filters(graph) is graph
    assert permute_filters(other := read_graph(build(SPLIT, SWAPPED))) is not other


TEXT = """
    inputs x: float32[1,1,6,16], f: float32[16,1,3,16]
    z: float32[1,1,6,16] = CONV_2D(x, float32[16,1,3,16], float32[16], padding=SAME, stride_w=1,
        stride_h=1, dilation_w_factor=1, dilation_h_factor=1)
    s: float32[1,1,6,8,2] = RESHAPE(z, new_shape=[-1,1,6,8,2])
    t: float32[1,1,6,2,8] = TRANSPOSE(s, [0, 1, 2, 4, 3])
    y: float32[1,1,12,8] = RESHAPE(t, new_shape=[-1,1,12,8])
    return y
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return y", "return y, s"),
        ("(x, float32[16,1,3,16]", "(x, f"),
        ("[1,1,", "[1,h,"),
        ("[1,1,", "[0,1,"),
    ],
    ids=["read twice", "computed filters", "dynamic height", "no batch"],
)
def test_other_channels_stay(old: str, new: str) -> None:
    """Filters are permuted, but no longer after any of these edits."""
    assert permute_filters(graph := parse_graph(TEXT)) is not graph
    text = TEXT.replace(old, new)
    assert text != TEXT
    check_unchanged(permute_filters, parse_graph(text))
