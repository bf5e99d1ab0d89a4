"""Images of 8 bits keep their channels last between convolutions, as ONNX Runtime stores them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check, run_onnx
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

STEPS: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
SIZE, CHANNELS = 6, 32
Between = Callable[[Build, Tensor], Tensor]


def convolve(m: Build, x: Tensor, image: Sequence[int]) -> Tensor:
    """Add a convolution of 3x3 pixels, whose filters are drawn."""
    generator = np.random.default_rng(len(image))
    drawn = generator.integers(-127, 128, [CHANNELS, 3, 3, CHANNELS]).astype(np.int8)
    w = m.constant(drawn, scale=[0.002] * CHANNELS, axis=0)
    b = m.constant(np.zeros(CHANNELS, np.int32), scale=[0.0001] * CHANNELS)
    words = {**STEPS, "fused_activation_function": "NONE"}
    return m.op("CONV_2D", [x, w, b], [[*image]], dtype="int8", scale=0.05, zero_point=3, **words)[
        0
    ]


def swish(m: Build, x: Tensor) -> Tensor:
    return m.op("HARD_SWISH", [x], [x.shape], dtype="int8", scale=0.05, zero_point=3)[0]


def prelu(m: Build, x: Tensor) -> Tensor:
    slopes = m.constant(np.arange(CHANNELS, dtype=np.int8).reshape(1, 1, -1), scale=0.01)
    return m.op("PRELU", [x, slopes], [x.shape], dtype="int8", scale=0.05, zero_point=3)[0]


def resize(height: int, width: int) -> Between:
    def make(m: Build, x: Tensor) -> Tensor:
        size = m.constant(np.array([height * SIZE, width * SIZE], np.int32))
        made = [1, height * SIZE, width * SIZE, CHANNELS]
        fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
        return m.op("RESIZE_NEAREST_NEIGHBOR", [x, size], [made], **fields)[0]

    return make


def build(between: Between) -> bytes:
    """Return a model of an operator between two convolutions."""
    m = Build()
    x = m.input([1, SIZE, SIZE, CHANNELS], dtype="int8", scale=0.05, zero_point=3)
    y = between(m, convolve(m, x, x.shape))
    m.output(convolve(m, y, y.shape))
    return m.bytes()


def check_bits(data: bytes) -> None:
    """Compare with LiteRT, and bit by bit with the canonical conversion."""
    check(data, steps=3)  # a step of the first convolution is several after the second one
    x = np.random.default_rng(1).integers(-128, 128, [1, SIZE, SIZE, CHANNELS]).astype(np.int8)
    made = []
    for forms in ("fastest", "canonical"):
        model = convert(data, io_layout="tflite", forms=forms).model
        made.append(run_onnx(model, {model.graph.input[0].name: x})[0])
    np.testing.assert_array_equal(made[0], made[1])


BETWEEN = {
    "HARD_SWISH": swish,
    "PRELU": prelu,
    "2x2": resize(2, 2),
    "3x1": resize(3, 1),
    "1x4": resize(1, 4),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_no_transpose_is_left_between_convolutions(between: Between) -> None:
    """The Transposes of the input and of the output stay: the model has channels first there."""
    data = build(between)
    result = convert(data)
    assert count_optimized_nodes(result.model)["Transpose"] == 2
    check_bits(data)


@pytest.mark.parametrize("order", [(), (0, 3, 1, 2)])
def test_no_transpose_is_left_in_heads_of_detectors(order: tuple[int, ...]) -> None:
    """Scores of two images are joined: rows of a pixel, or rows of a channel as of PyTorch."""
    m, parts = Build(), []
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x = m.input([1, SIZE, SIZE, CHANNELS], **fields)
    pixels = SIZE * SIZE
    for _ in range(2):
        x = convolve(m, x, x.shape)
        y = x
        shape = [1, pixels, CHANNELS]
        if order:
            moved = m.constant(np.array(order, np.int32))
            y = m.op("TRANSPOSE", [x, moved], [[1, CHANNELS, SIZE, SIZE]], **fields)[0]
            shape = [1, CHANNELS, pixels]
        new_shape = m.constant(np.array(shape, np.int32))
        parts += m.op("RESHAPE", [y, new_shape], [shape], new_shape=shape, **fields)
    axis = 2 if order else 1
    shape[axis] *= 2
    m.output(*m.op("CONCATENATION", parts, [shape], axis=axis, **fields))
    data = m.bytes()
    # The input, and the output of rows of a channel.
    assert count_optimized_nodes(convert(data).model)["Transpose"] == axis
    check_bits(data)


def test_no_transpose_is_left_after_a_pixel() -> None:
    """Channels of one pixel do not move, so that the plan has no Transpose for ONNX Runtime's."""
    m = Build()
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x = m.input([1, 1, 1, CHANNELS], **fields)
    y = convolve(m, x, x.shape)
    m.output(*m.op("RESHAPE", [y], [[1, CHANNELS]], new_shape=[1, CHANNELS], **fields))
    data = m.bytes()
    assert count_optimized_nodes(convert(data).model)["Transpose"] <= 1
    check(data, steps=1)


@pytest.mark.parametrize("averages", [False, True])
def test_no_transpose_is_left_before_a_dense_layer(*, averages: bool) -> None:
    """A layer of a whole image, or of the means of its channels, reads pixel after pixel."""
    m, generator = Build(), np.random.default_rng(1)
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.05, "zero_point": 3}
    x = m.input([1, SIZE, SIZE, CHANNELS], **fields)
    y, features = convolve(m, x, x.shape), SIZE * SIZE * CHANNELS
    if averages:
        axes, features = m.constant(np.array([1, 2], np.int32)), CHANNELS
        (y,) = m.op("MEAN", [y, axes], [[1, CHANNELS]], **fields)
    w = m.constant(generator.integers(-127, 128, (10, features)).astype(np.int8), scale=0.001)
    m.output(*m.op("FULLY_CONNECTED", [y, w], [[1, 10]], **fields))
    data = m.bytes()
    assert count_optimized_nodes(convert(data).model)["Transpose"] == 1
    check_bits(data)
