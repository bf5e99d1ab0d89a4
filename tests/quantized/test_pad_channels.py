"""Channels of int8 depthwise convolutions are padded to a multiple of 16; see pad_channels.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check, run_onnx
from tflite2onnx import convert

STEPS: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}


def bottleneck(channels: int, activation: str = "RELU6") -> bytes:
    """Return a model of a 1x1, a depthwise and another 1x1 convolution."""
    m, generator = Build(), np.random.default_rng(0)

    def convolve(x: Tensor, code: str, shape: list[int], axis: int, y: float) -> Tensor:
        count = shape[axis]
        scale = generator.uniform(0.005, 0.02, count).astype(np.float32)
        integers = generator.integers(-127, 128, shape).astype(np.int8)
        w = m.constant(integers, scale=scale.tolist(), axis=axis)
        b = m.constant(
            generator.integers(-500, 500, count).astype(np.int32), scale=(scale * 0.05).tolist()
        )
        made = [1, 6, 5, count]
        words = {**STEPS, "fused_activation_function": activation}
        return m.op(code, [x, w, b], [made], dtype="int8", scale=y, zero_point=-100, **words)[0]

    x = m.input([1, 6, 5, 16], dtype="int8", scale=0.05, zero_point=3)
    x = convolve(x, "CONV_2D", [channels, 1, 1, 16], 0, 0.05)
    x = convolve(x, "DEPTHWISE_CONV_2D", [1, 3, 3, channels], 3, 0.05)
    m.output(convolve(x, "CONV_2D", [16, 1, 1, channels], 0, 0.1))
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
