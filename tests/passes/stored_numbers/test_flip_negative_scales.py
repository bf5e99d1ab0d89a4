"""passes/.../flip_negative_scales.py: LiteRT multiplies by negative scales; ONNX does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx import ConversionError, convert

SCALES = np.array([0.01, -0.02, 0.03, -0.01], np.float32)


def build_convolution(
    weights: Any = None, *, scales: Any = SCALES, code: str = "CONV_2D", dtype: str = "int8"
) -> Build:
    """Return a convolution of 4 channels, some of which have negative scales."""
    m, generator = Build(), np.random.default_rng(0)
    depthwise = code == "DEPTHWISE_CONV_2D"
    shape = {"CONV_2D": (4, 3, 3, 4), "DEPTHWISE_CONV_2D": (1, 3, 3, 4)}.get(code, (4, 4))
    if weights is None:
        weights = generator.integers(-127, 128, shape, np.int8)
    x_shape, y_shape = ([1, 5, 6, 4],) * 2 if len(shape) == 4 else ([3, 4],) * 2
    x = m.input(x_shape, dtype=dtype, scale=0.05, zero_point=3 if dtype == "int8" else 0)
    axis = 3 if depthwise else 0
    w = m.constant(weights, dtype="int8", scale=scales, axis=axis)
    wide = "int32" if dtype == "int8" else "int64"
    bias = generator.integers(-2000, 2000, 4).astype(wide)
    b = m.constant(bias, dtype=wide, scale=np.float32(0.05) * np.asarray(scales))
    y = m.tensor(y_shape, dtype=dtype, scale=0.1 if dtype == "int8" else 1e-3)
    options: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
    options |= {"depth_multiplier": 1} if depthwise else {}
    m.output(*m.op(code, [x, w, b], [y], **(options if len(shape) == 4 else {})))
    return m


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_channels_with_negative_scales_equal_litert(code: str, dtype: str) -> None:
    check(build_convolution(code=code, dtype=dtype).bytes(), steps=1)


def test_one_negative_scale_equals_litert() -> None:
    check(build_convolution(scales=np.array([-0.02], np.float32)).bytes(), steps=1)


def test_smallest_integer_of_another_channel_is_allowed() -> None:
    weights = np.random.default_rng(1).integers(-127, 128, (4, 3, 3, 4), np.int8)
    weights[2] = -128
    check(build_convolution(weights).bytes(), steps=1)


def test_refuses_the_smallest_integer_without_opposite() -> None:
    weights = np.full((4, 3, 3, 4), -128, np.int8)
    with pytest.raises(ConversionError, match="greater than -128, which has no opposite in int8"):
        convert(build_convolution(weights).bytes())


def test_dequantized_constant_may_have_a_negative_scale() -> None:
    m = Build()
    x = m.input([3, 4], dtype="int8", scale=0.05, zero_point=3)
    constant = m.constant(np.arange(-5, 7, dtype=np.int8).reshape(3, 4), scale=[-0.1])
    m.output(*m.op("DEQUANTIZE", [constant], [[3, 4]], dtype="float32"))
    m.output(*m.op("DEQUANTIZE", [x], [[3, 4]], dtype="float32"))
    check(m.bytes())


def test_refuses_a_computed_bias_of_negative_scales() -> None:
    m = Build()
    x = m.input([3, 4], dtype="int8", scale=0.05)
    b = m.input([4], dtype="int32", scale=-0.001)
    w = m.constant(np.ones((4, 4), np.int8), scale=np.array([-0.02], np.float32))
    m.output(*m.op("FULLY_CONNECTED", [x, w, b], [m.tensor([3, 4], dtype="int8", scale=0.1)]))
    with pytest.raises(ConversionError, match="bias of negative scales, must be constant"):
        convert(m.bytes())


def test_refuses_negative_scales_of_computed_tensors() -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input([3], dtype="int8", scale=[-0.5])], [[3]]))
    with pytest.raises(ConversionError, match="scales must be finite and not negative"):
        convert(m.bytes())
