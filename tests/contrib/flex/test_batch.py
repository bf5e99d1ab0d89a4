"""A batch of TensorFlow's operators, and of RFFT2D, equals single runs.

LiteRT runs no Flex operators, so the reference is the model for one sample in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.passes.batch.test_add_batch import check_batch, draw
from tests.support import Build, Tensor, run_onnx
from tests.support.flex import flex_options
from tflite2onnx import convert

Network = Callable[[Build], Sequence[Tensor]]


def flex(
    name: str, shape: list[int], y: list[int], *constants: Any, **attributes: Any
) -> Callable[[Build], Tensor]:
    def network(m: Build) -> Tensor:
        others = [m.constant(each) for each in constants]
        inputs = [m.input(shape, name="x"), *others]
        return m.custom(f"Flex{name}", inputs, [m.tensor(y)], flex_options(name, **attributes))[0]

    return network


def transform(name: str, *, inverse: bool = False) -> Callable[[Build], Tensor]:
    """Return a Fourier transform of the last axis of real numbers; the result is a magnitude."""

    def network(m: Build) -> Tensor:
        x = m.input([1, 3, 8], name="x")
        length = m.constant(np.array([8], np.int32))
        spectrum = m.tensor([1, 3, 5], dtype="complex64")
        (z,) = m.custom("FlexRFFT", [x, length], [spectrum], flex_options("RFFT"))
        if inverse:
            (y,) = m.custom("FlexIRFFT", [z, length], [m.tensor([1, 3, 8])], flex_options("IRFFT"))
            return y
        made = m.tensor([1, 3, 5], dtype="complex64")
        (z,) = m.custom(f"Flex{name}", [z], [made], flex_options(name))
        return m.op("COMPLEX_ABS", [z], [[1, 3, 5]], dtype="float32")[0]

    return network


def ints(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array(numbers, np.int32)


PATCHES = {
    "ksizes": [1, 3, 3, 1],
    "strides": [1, 2, 2, 1],
    "rates": [1, 1, 1, 1],
    "padding": b"SAME",
}
NETWORKS: dict[str, Callable[[Build], Tensor]] = {
    "RGBToHSV": flex("RGBToHSV", [1, 4, 5, 3], [1, 4, 5, 3]),
    "HSVToRGB of pixels": flex("HSVToRGB", [4, 3], [4, 3]),
    "AdjustHue": flex("AdjustHue", [1, 4, 5, 3], [1, 4, 5, 3], np.float32(0.3)),
    "AdjustSaturation": flex("AdjustSaturation", [1, 4, 5, 3], [1, 4, 5, 3], np.float32(0.3)),
    "AdjustContrast": flex("AdjustContrastv2", [1, 4, 5, 3], [1, 4, 5, 3], np.float32(2)),
    "AdjustContrast of an image": flex("AdjustContrastv2", [4, 5, 3], [4, 5, 3], np.float32(2)),
    "Cumprod": flex("Cumprod", [1, 4, 5], [1, 4, 5], np.int32(1)),
    "Cumprod of the first axis": flex("Cumprod", [4, 5], [4, 5], np.int32(0)),
    "CumulativeLogsumexp": flex("CumulativeLogsumexp", [1, 4, 5], [1, 4, 5], np.int32(-1)),
    "ExtractImagePatches": flex("ExtractImagePatches", [1, 6, 7, 2], [1, 3, 4, 18], **PATCHES),
    "ResizeBicubic": flex(
        "ResizeBicubic", [1, 4, 5, 3], [1, 7, 6, 3], ints(7, 6), half_pixel_centers=True
    ),
    "ResizeBicubic of one row": flex("ResizeBicubic", [1, 1, 5, 2], [1, 2, 3, 2], ints(2, 3)),
    "Roll": flex("Roll", [1, 4, 5], [1, 4, 5], ints(2, -1), ints(1, -1)),
    "Roll of the first axis": flex("Roll", [4, 5], [4, 5], ints(3), ints(0)),
    "FFT": transform("FFT"),
    "IFFT": transform("IFFT"),
    "FFT2D": transform("FFT2D"),
    "IRFFT": transform("RFFT", inverse=True),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("size", [3, "n"])
def test_batch_equals_single_runs(name: str, size: int | str) -> None:
    m = Build()
    m.output(NETWORKS[name](m))
    one = convert(m.bytes(), io_layout="tflite")
    many = convert(m.bytes(), io_layout="tflite", batch=size)
    shape = one.inputs[0].tflite_shape
    samples = np.abs(draw(3, *shape)) + 0.1
    whole = samples.reshape(3, *shape[1:]) if shape[0] == 1 else samples
    (have,) = run_onnx(many.model, {"x": whole}, optimize=True)
    want = np.stack([run_onnx(one.model, {"x": x}, optimize=True)[0] for x in samples])
    assert many.outputs[0].tflite_sizes[0] == size
    np.testing.assert_allclose(have.reshape(want.shape), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [[1, 8, 4], [8, 4], [1, 2, 8, 4]], ids=str)
@pytest.mark.parametrize("size", [3, "n"])
def test_batch_of_rfft2d_equals_single_runs(shape: list[int], size: int | str) -> None:
    m = Build()
    made = [*shape[:-1], 3]
    inputs = [m.input(shape, name="x"), m.constant(np.array([8, 4], np.int32))]
    (z,) = m.op("RFFT2D", inputs, [m.tensor(made, dtype="complex64")])
    m.output(*m.op("COMPLEX_ABS", [z], [made], dtype="float32"))
    check_batch(m.bytes(), size)
