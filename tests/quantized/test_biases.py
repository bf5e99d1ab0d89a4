"""Biases are integers that are added to the accumulators, whatever their scale is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check

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


def layer(code: str, dtype: str, scale: float | None) -> bytes:
    """Return a layer whose bias has a scale, or none."""
    x_shape, w_shape, y_shape, options = LAYERS[code]
    generator, m = np.random.default_rng(0), Build()
    weights, wide = TYPES[dtype]
    zero = 128 if dtype == "uint8" else 0
    low = 0 if dtype == "uint8" else -127
    x = m.input(x_shape, dtype=dtype, scale=0.05, zero_point=zero)
    integers = generator.integers(low, low + 255, w_shape).astype(weights)
    w = m.constant(integers, scale=0.01, zero_point=zero)
    numbers = generator.integers(-3000, 3000, FILTERS).astype(wide)
    b = m.constant(numbers) if scale is None else m.constant(numbers, scale=scale, zero_point=0)
    y = m.tensor(y_shape, dtype=dtype, scale=0.3, zero_point=zero)
    inputs: list[Tensor] = [x, w, b]
    if code == "TRANSPOSE_CONV":
        inputs = [m.constant(np.array(y_shape, np.int32)), w, x, b]
    m.output(*m.op(code, inputs, [y], **options))
    return m.bytes()


def check_layer(code: str, dtype: str, scale: float | None) -> None:
    most = {"int16": 200}.get(dtype, 127)
    zero = 128 if dtype == "uint8" else 0
    # LiteRT's kernels round twice.
    check(layer(code, dtype, scale), ranges={dtype: (zero - most, zero + most)}, steps=1)


@pytest.mark.parametrize("scale", [0.0, 0.002, -5e-4, 1e-42, None])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("code", LAYERS)
def test_the_scale_of_a_bias_is_not_read(code: str, dtype: str, scale: float | None) -> None:
    check_layer(code, dtype, scale)


@pytest.mark.parametrize("scale", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_scales_that_some_kernels_refuse_are_ignored(code: str, scale: float) -> None:
    """Odd bias scales, which the kernels of uint8 and FULLY_CONNECTED refuse."""
    check_layer(code, "int8", scale)
