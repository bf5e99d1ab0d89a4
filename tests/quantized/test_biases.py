"""Biases are integers that are added to the accumulators, whatever their scale is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tflite2onnx.quantization.rules import find_bias_storage
from tflite2onnx.tensor import DType, Quantization, Tensor as FileTensor

if TYPE_CHECKING:
    from tests.support import Tensor

FILTERS = 4
# The types of data, weights and biases.
TYPES = {"int8": ("int8", "int32"), "uint8": ("uint8", "int32"), "int16": ("int8", "int64")}
# The shapes of data, weights and output, and the options.
WINDOW = {"padding": "SAME", "stride_h": 1, "stride_w": 1}
LAYERS: dict[str, tuple[list[int], list[int], list[int], dict[str, Any]]] = {
    "CONV_2D": ([1, 4, 4, 3], [FILTERS, 3, 3, 3], [1, 4, 4, FILTERS], WINDOW),
    "DEPTHWISE_CONV_2D": (
        [1, 4, 4, FILTERS],
        [1, 3, 3, FILTERS],
        [1, 4, 4, FILTERS],
        {**WINDOW, "depth_multiplier": 1},
    ),
    "FULLY_CONNECTED": ([2, 5], [FILTERS, 5], [2, FILTERS], {}),
    "TRANSPOSE_CONV": ([1, 4, 4, 3], [FILTERS, 2, 2, 3], [1, 4, 4, FILTERS], WINDOW),
}


def layer(code: str, dtype: str, scale: float | None, axes: int = 1) -> bytes:
    """Return a layer whose bias has a scale, or none, and leading axes of size 1."""
    x_shape, w_shape, y_shape, options = LAYERS[code]
    generator, m = np.random.default_rng(0), Build()
    weights, wide = TYPES[dtype]
    zero = 128 if dtype == "uint8" else 0
    low = 0 if dtype == "uint8" else -127
    x = m.input(x_shape, dtype=dtype, scale=0.05, zero_point=zero)
    integers = generator.integers(low, low + 255, w_shape).astype(weights)
    w = m.constant(integers, scale=0.01, zero_point=zero)
    numbers = generator.integers(-3000, 3000, FILTERS).astype(wide)
    numbers = numbers.reshape((1,) * (axes - 1) + (FILTERS,))
    b = m.constant(numbers) if scale is None else m.constant(numbers, scale=scale, zero_point=0)
    y = m.tensor(y_shape, dtype=dtype, scale=0.3, zero_point=zero)
    inputs: list[Tensor] = [x, w, b]
    if code == "TRANSPOSE_CONV":
        inputs = [m.constant(np.array(y_shape, np.int32)), w, x, b]
    m.output(*m.op(code, inputs, [y], **options))
    return m.bytes()


def check_layer(code: str, dtype: str, scale: float | None, axes: int = 1) -> None:
    most = {"int16": 200}.get(dtype, 127)
    zero = 128 if dtype == "uint8" else 0
    # LiteRT's kernels round twice.
    check(layer(code, dtype, scale, axes), ranges={dtype: (zero - most, zero + most)}, steps=1)


@pytest.mark.parametrize("scale", [0.0, 0.002, -5e-4, 1e-42, None])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", LAYERS)
def test_the_scale_of_a_bias_is_not_read(code: str, dtype: str, scale: float | None) -> None:
    check_layer(code, dtype, scale)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", ["CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_biases_may_have_four_axes(code: str, dtype: str) -> None:
    """Keras 3 adds biases of the shape [1, 1, 1, O] to transposed convolutions."""
    check_layer(code, dtype, 0.0005, axes=4)


@pytest.mark.parametrize("scale", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_scales_that_some_kernels_refuse_are_ignored(code: str, scale: float) -> None:
    """Odd bias scales, which the kernels of uint8 and FULLY_CONNECTED refuse."""
    check_layer(code, "int8", scale)


@pytest.mark.parametrize(
    ("number", "dropped"),
    [(2**31 - 1, 0), (2**31, 1), (-(2**31), 0), (-(2**31) - 1, 1), (2**40, 10)],
)
def test_biases_of_more_than_32_bits_lose_low_bits(number: int, dropped: int) -> None:
    """The scale of the bias is that of the accumulators, times 2 for each bit that is dropped."""
    scales = (np.array([0.5], np.float32), np.array([0.25, 3], np.float32))
    x, w = (
        FileTensor(name, (2, 2), dtype, quantization=Quantization(scale, np.zeros(scale.size)))
        for name, dtype, scale in zip("xw", (DType.INT16, DType.INT8), scales, strict=True)
    )
    data = np.array([number, 0])
    bias = FileTensor("b", (2,), DType.INT64, data)
    storage = find_bias_storage(x, w, bias)
    assert storage is not None
    assert storage.dropped == dropped
    np.testing.assert_array_equal(storage.scale, np.array([0.125, 1.5]) * 2**dropped)
