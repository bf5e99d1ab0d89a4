"""Channels of int8 depthwise convolutions are padded to a multiple of 16; see pad_channels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.support import Build, Tensor, check, run_onnx
from tflite2onnx import convert

STEPS: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


ROW: dict[str, Any] = {"dtype": "int8", "zero_point": -100}


class Network(Build):
    """A model of convolutions of int8 images of 6x5 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def convolve(
        self, x: Tensor, channels: int, scale: float = 0.05, activation: str = "NONE", size: int = 1
    ) -> Tensor:
        """Add CONV_2D."""
        filters = (channels, size, size, x.shape[-1])
        return self._add("CONV_2D", x, filters, 0, scale, activation)

    def multiply(self, x: Tensor, channels: int) -> Tensor:
        """Add FULLY_CONNECTED of each pixel."""
        filters, words = (channels, x.shape[-1]), {"keep_num_dims": True}
        return self._add("FULLY_CONNECTED", x, filters, 0, 0.05, "RELU", **words)

    def convolve_depthwise(self, x: Tensor, activation: str = "NONE") -> Tensor:
        """Add DEPTHWISE_CONV_2D."""
        return self._add("DEPTHWISE_CONV_2D", x, (1, 3, 3, x.shape[-1]), 3, 0.05, activation)

    def _add(
        self,
        code: str,
        x: Tensor,
        shape: tuple[int, ...],
        axis: int,
        y: float,
        activation: str,
        **options: Any,
    ) -> Tensor:
        scale = self.random.uniform(0.005, 0.02, shape[axis]).astype(np.float32)
        integers = self.random.integers(-127, 128, shape).astype(np.int8)
        w = self.constant(integers, scale=scale.tolist(), axis=axis)
        biases = self.random.integers(-500, 500, shape[axis]).astype(np.int32)
        b = self.constant(biases, scale=(scale * 0.05).tolist())
        words = {**(options or STEPS), **ROW, "fused_activation_function": activation}
        return self.op(code, [x, w, b], [[1, 6, 5, shape[axis]]], scale=y, **words)[0]


def bottleneck(channels: int, activation: str = "RELU6") -> bytes:
    """Return a model of a 1x1, a depthwise and another 1x1 convolution."""
    m = Network()
    x = m.input([1, 6, 5, 16], dtype="int8", scale=0.05, zero_point=3)
    x = m.convolve_depthwise(m.convolve(x, channels, activation=activation), activation)
    m.output(m.convolve(x, 16, 0.1, activation))
    return m.bytes()


def residual(channels: int, more: int, code: str = "") -> bytes:
    """Return a residual block that grows its channels, between two convolutions."""
    m, stored = Network(), {"scale": 0.05, **ROW}
    x = m.convolve(m.input([1, 6, 5, 16], dtype="int8", scale=0.05, zero_point=3), channels)
    if code:
        stored = {"dtype": "int8", "scale": 1 / 256, "zero_point": -128}
        (x,) = m.op(code, [x], [x.shape], **stored)
    y = m.convolve(m.convolve_depthwise(x), channels + more)
    pads = m.constant(np.array([[0, 0], [0, 0], [0, 0], [0, more]], np.int32))
    (wide,) = m.op("PAD", [x, pads], [y.shape], **stored)
    (x,) = m.op("ADD", [wide, y], [y.shape], scale=0.1, **ROW)
    m.output(m.convolve(m.convolve_depthwise(x), 16, 0.1))
    return m.bytes()


def list_filters(data: bytes) -> list[tuple[int, ...]]:
    found = convert(data).model.graph.initializer
    return [tuple(each.dims) for each in found if len(each.dims) == len("OIHW")]


@pytest.mark.parametrize("activation", ["NONE", "RELU6"])
@pytest.mark.parametrize(("channels", "padded"), [(24, 32), (72, 80), (8, 16), (41, 48)])
def test_padded_channels_give_equal_integers(channels: int, padded: int, activation: str) -> None:
    """The integers equal those of the convolution without padding."""
    data = bottleneck(channels, activation)
    check(data, steps=3)  # a step of the first layer is several after the last
    assert (padded, 1, 3, 3) in list_filters(data)
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 5, 16)).astype(np.int8)
    made = []
    for forms in ("fastest", "canonical"):
        model = convert(data, io_layout="tflite", forms=forms).model
        made.append(run_onnx(model, {model.graph.input[0].name: x})[0])
    np.testing.assert_array_equal(made[0], made[1])


def test_filters_of_whole_blocks_are_not_padded() -> None:
    assert (32, 1, 3, 3) in list_filters(bottleneck(32))


@pytest.mark.parametrize(
    ("channels", "more", "pads"), [(24, 4, []), (24, 16, [16]), (24, 24, [16]), (16, 4, [16])]
)
def test_images_around_pad_have_padded_channels(channels: int, more: int, pads: list[int]) -> None:
    """PAD pads the channels that are left, or disappears."""
    data = residual(channels, more)
    check(data, steps=10)
    model = convert(data, io_layout="tflite").model
    names = [node.input[1] for node in model.graph.node if node.op_type == "Pad"]
    found = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    constants = [found[name] for name in names if name in found]
    assert [int(each.max()) for each in constants if len(each) == 2 * len("NCHW")] == pads
    canonical = convert(data, io_layout="tflite", forms="canonical").model
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 5, 16)).astype(np.int8)
    have, want = (run_onnx(m, {m.graph.input[0].name: x})[0] for m in (model, canonical))
    np.testing.assert_array_equal(have, want)


def test_channels_that_are_not_zeros_are_not_those_of_pad() -> None:
    """LOGISTIC makes 0.5 of the zeros of padded channels."""
    data = residual(24, 4, "LOGISTIC")
    check(data, steps=10)
    assert (24, 1, 3, 3) in list_filters(data)


@pytest.mark.parametrize(
    ("channels", "size", "outputs", "padded"),
    [(10, 3, 16, 12), (5, 1, 16, 8), (6, 3, 16, 8), (10, 3, 10, 10), (12, 3, 16, 12)],
)
def test_channels_of_convolutions_become_a_multiple_of_4(
    channels: int, size: int, outputs: int, padded: int
) -> None:
    """They stay if there is no direct kernel."""
    m = Network()
    x = m.convolve(m.input([1, 6, 5, 16], dtype="int8", scale=0.05, zero_point=3), channels)
    m.output(m.convolve(x, outputs, 0.2, size=size))
    check(m.bytes(), steps=3)
    assert (outputs, padded, size, size) in list_filters(m.bytes())


def test_dense_layer_of_pixels_is_a_convolution() -> None:
    """Its data have padded channels, for which there is a direct kernel."""
    m = Network()
    x = m.convolve(m.input([1, 6, 5, 16], dtype="int8", scale=0.05, zero_point=3), 5)
    m.output(m.convolve(m.multiply(x, 32), 16, 0.2))
    check(m.bytes(), steps=3)
    assert (32, 8, 1, 1) in list_filters(m.bytes())
