"""op/common/checks.py: checks that operators share."""

from __future__ import annotations

import pytest

from tflite2onnx.op.common.checks import find_features
from tflite2onnx.tensor import Shape


@pytest.mark.parametrize(
    ("shape", "features", "first"),
    [
        ((2, 3, 5), 5, 2),
        ((2, 3, 5), 15, 1),
        ((2, 3, 5), 30, 0),
        ((2, 3, 5), 6, 3),
        ((), 1, 0),
        ((2, 1, 5), 5, 2),
        ((5, 1), 1, 1),
        ((5, 1), 5, 0),
        ((0, 3), 0, 0),
        ((0, 3), 3, 1),
    ],
)
def test_features_are_the_product_of_the_last_axes(shape: Shape, features: int, first: int) -> None:
    assert find_features(shape, features) == first
