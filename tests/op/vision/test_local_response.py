"""LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build, check
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError


@pytest.mark.parametrize("radius", [0, 1, 2, 5, 100])
@pytest.mark.parametrize(
    ("bias", "alpha", "beta"), [(1.0, 1.0, 0.5), (2.0, 1e-4, 0.75), (0.5, 0.3, 1.0)]
)
def test_normalization_of_every_radius_equals_litert(
    radius: int, bias: float, alpha: float, beta: float
) -> None:
    m = Build()
    (y,) = m.op(
        "LOCAL_RESPONSE_NORMALIZATION",
        [m.input([2, 3, 5, 7])],
        [[2, 3, 5, 7]],
        radius=radius,
        bias=bias,
        alpha=alpha,
        beta=beta,
    )
    check_outputs(m, y)


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.5), (1.0, 0.0), (0.0, 0.0)])
def test_factors_of_0_equal_litert(alpha: float, beta: float) -> None:
    """Zero alpha or beta is converted without LRN, which ONNX Runtime refuses for 0."""
    m = Build()
    (y,) = m.op(
        "LOCAL_RESPONSE_NORMALIZATION",
        [m.input([2, 3, 5, 7])],
        [[2, 3, 5, 7]],
        radius=2,
        bias=2.0,
        alpha=alpha,
        beta=beta,
    )
    check_outputs(m, y)


@pytest.mark.parametrize("bias", [1e-40, 1e-30])
def test_zeros_stay_zeros_with_a_tiny_bias(bias: float) -> None:
    """The power of a small sum would be computed as 0, and 0 be divided by 0."""
    m = Build()
    (y,) = m.op(
        "LOCAL_RESPONSE_NORMALIZATION",
        [m.input([1, 1, 2, 4])],
        [[1, 1, 2, 4]],
        radius=1,
        bias=bias,
        alpha=1.0,
        beta=0.75,
    )
    m.output(y)
    check(m.bytes(), inputs=[np.array([0, 0, 0, 1, 2, 0, 0, 0], np.float32).reshape(1, 1, 2, 4)])


@pytest.mark.parametrize(("alpha", "beta"), [(-1.0, 0.5), (1.0, -0.5)])
def test_refuses_negative_factors(alpha: float, beta: float) -> None:
    m = Build()
    x = m.input([1, 1, 1, 3])
    m.output(*m.op("LOCAL_RESPONSE_NORMALIZATION", [x], [x.shape], alpha=alpha, beta=beta))
    with pytest.raises(ConversionError, match="alpha and beta must not be negative"):
        convert(m.bytes())


@pytest.mark.parametrize(
    ("shape", "radius", "dtype", "reason"),
    [
        ([2, 3, 5], 1, "float32", "axes NHWC"),
        ([2, 3, 5, 7], -1, "float32", "radius must not be negative, got -1"),
        ([2, 3, 5, 7], 1, "int32", "must be float32, got int32"),
    ],
)
def test_refuses_unsupported_axes_radii_and_types(
    shape: list[int], radius: int, dtype: str, reason: str
) -> None:
    m = Build()
    x = m.input(shape, dtype=dtype)
    m.output(*m.op("LOCAL_RESPONSE_NORMALIZATION", [x], [shape], radius=radius, beta=0.5))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())
