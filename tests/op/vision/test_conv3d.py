"""CONV_3D and CONV_3D_TRANSPOSE."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

Shape = tuple[int, ...]
CHANNELS, FILTERS = 2, 3


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def options(strides: Shape, dilations: Shape = (1, 1, 1)) -> dict[str, Any]:
    named = zip("dhw", strides, dilations, strict=True)
    return {
        name: value
        for axis, stride, dilation in named
        for name, value in ((f"stride_{axis}", stride), (f"dilation_{axis}_factor", dilation))
    }


# volume, kernel, strides, dilations
WINDOWS: list[tuple[Shape, Shape, Shape, Shape]] = [
    ((5, 7, 11), (3, 2, 3), (1, 1, 1), (1, 1, 1)),
    ((5, 7, 11), (2, 3, 4), (2, 1, 3), (1, 1, 1)),
    ((7, 8, 9), (3, 3, 2), (1, 1, 1), (2, 3, 1)),
    ((5, 7, 11), (1, 1, 1), (1, 2, 1), (1, 1, 1)),
]


def output_shape(
    volume: Shape, kernel: Shape, strides: Shape, dilations: Shape, padding: str
) -> Shape:
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    triples = zip(volume, extents, strides, strict=True)
    return tuple(-(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in triples)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("volume", "kernel", "strides", "dilations"), WINDOWS, ids=str)
def test_conv_3d_of_all_windows_equals_litert(
    volume: Shape, kernel: Shape, strides: Shape, dilations: Shape, padding: str, *, bias: bool
) -> None:
    m = Build()
    inputs = [m.input([2, *volume, CHANNELS]), m.constant(floats(*kernel, CHANNELS, FILTERS))]
    inputs += [m.constant(floats(FILTERS))] if bias else []
    shape = [2, *output_shape(volume, kernel, strides, dilations, padding), FILTERS]
    words = options(strides, dilations)
    check_outputs(m, *m.op("CONV_3D", inputs, [shape], padding=padding, **words))


@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
def test_fused_activations_equal_litert(activation: str) -> None:
    m = Build()
    inputs = [m.input([1, 5, 7, 4, CHANNELS]), m.constant(floats(3, 3, 3, CHANNELS, FILTERS))]
    (y,) = m.op(
        "CONV_3D",
        inputs,
        [[1, 5, 7, 4, FILTERS]],
        padding="SAME",
        fused_activation_function=activation,
        **options((1, 1, 1)),
    )
    check_outputs(m, y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("volume", "kernel", "strides", "dilations"), WINDOWS, ids=str)
def test_transposed_conv_3d_equals_litert(
    volume: Shape, kernel: Shape, strides: Shape, dilations: Shape, padding: str, *, bias: bool
) -> None:
    m = Build()
    small = output_shape(volume, kernel, strides, dilations, padding)
    shape = [2, *volume, FILTERS]
    inputs = [
        m.constant(np.array(shape, np.int32)),
        m.constant(floats(*kernel, FILTERS, CHANNELS)),
        m.input([2, *small, CHANNELS]),
        *([m.constant(floats(FILTERS))] if bias else []),
    ]
    words = options(strides, dilations)
    check_outputs(
        m, *m.op("CONV_3D_TRANSPOSE", inputs, [m.tensor(shape)], padding=padding, **words)
    )


def conv(
    m: Build,
    x: Tensor | None = None,
    *,
    strides: Shape = (1, 1, 1),
    shape: Shape = (1, 5, 7, 4, FILTERS),
    channels: int = CHANNELS,
) -> Tensor:
    x = x or m.input([1, 5, 7, 4, CHANNELS])
    w = m.constant(floats(3, 3, 3, channels, FILTERS))
    return m.op("CONV_3D", [x, w], [shape], padding="SAME", **options(strides))[0]


def test_refuses_unsupported_strides_groups_and_types() -> None:
    m = Build()
    m.output(
        conv(m, strides=(1, 0, 1)),
        conv(m, m.input([1, 5, 7, 4, 3]), channels=1),
        conv(m, m.input([1, 5, 7, CHANNELS])),
        conv(m, m.input([1, 5, 7, 4, CHANNELS], dtype="int8", scale=0.5)),
    )
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "got a window of (3, 3, 3) with strides (1, 0, 1)" in reasons
    assert "the 1 channels of its filters, got 3" in reasons
    assert "axes NDHWC" in reasons
    assert "float32, got int8" in reasons


def test_transposed_convolution_refuses_a_wrong_volume() -> None:
    m = Build()
    shape = [1, 5, 7, 9, FILTERS]
    inputs = [
        m.constant(np.array(shape, np.int32)),
        m.constant(floats(3, 3, 3, FILTERS, CHANNELS)),
        m.input([1, 5, 7, 4, CHANNELS]),
    ]
    words = options((1, 1, 1))
    m.output(*m.op("CONV_3D_TRANSPOSE", inputs, [m.tensor(shape)], padding="SAME", **words))
    with pytest.raises(ConversionError, match=r"output of \(5, 7, 9\) in \(5, 7, 4\) steps"):
        convert(m.bytes())
