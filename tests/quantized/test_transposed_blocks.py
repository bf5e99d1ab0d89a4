"""Transposed convolutions of float data by integers compute blocks of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.quantized.layers import Shape
from tests.quantized.test_hybrid import extremes, hybrid
from tests.support import check
from tests.support.fusions import count_optimized_nodes


def layer(
    image: tuple[int, int],
    window: tuple[int, int],
    out: tuple[int, int],
    *,
    stride: tuple[int, int] = (2, 2),
    channels: int = 64,
    batch: int = 1,
    **options: Any,
) -> Shape:
    steps = {"stride_h": stride[0], "stride_w": stride[1], "padding": "SAME", **options}
    filters = [48, *window, channels]
    return Shape("TRANSPOSE_CONV", [batch, *image, channels], filters, [batch, *out, 48], 0, steps)


CASES = [
    layer((5, 7), (3, 3), (10, 14)),
    layer((5, 7), (4, 4), (10, 14)),
    layer((5, 7), (5, 5), (10, 14)),
    layer((5, 7), (3, 5), (9, 13)),
    layer((5, 7), (2, 2), (10, 14), channels=160),
    layer((5, 7), (3, 4), (15, 21), stride=(3, 3)),
    layer((5, 7), (4, 4), (12, 16), padding="VALID"),
    layer((5, 7), (3, 3), (10, 14), batch=2),
]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", CASES, ids=lambda s: f"{s.x} {s.w} {s.y}")
def test_blocks_are_products_of_integers(shape: Shape, *, per_channel: bool) -> None:
    data = hybrid(shape, "int8", per_channel=per_channel)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    left = count_optimized_nodes(result.model)
    assert left["MatMulIntegerToFloat"] + left["DynamicQuantizeMatMul"] == 1, left
    assert left["ConvTranspose"] == 0, left


@pytest.mark.parametrize(
    "shape",
    [
        layer((5, 7), (3, 3), (5, 7), stride=(1, 1)),
        layer((5, 7), (3, 3), (10, 7), stride=(2, 1)),
        layer((5, 7), (3, 3), (10, 14), channels=8),
        layer((5, 7), (1, 1), (9, 13), channels=32),
    ],
    ids=lambda s: f"{s.x} {s.w} {s.y}",
)
def test_transposed_convolutions_that_gain_no_time_stay(shape: Shape) -> None:
    data = hybrid(shape, "int8", per_channel=True)
    result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
    assert count_optimized_nodes(result.model)["ConvTranspose"] == 1


def test_bias_is_optional_and_activation_is_kept() -> None:
    shape = layer((5, 7), (4, 4), (10, 14))
    for options in ({"bias": False}, {"fused_activation_function": "RELU"}):
        data = hybrid(shape, "int8", per_channel=True, **options)
        result = check(data, inputs=extremes(shape, asymmetric=True), default_kernels=True)
        assert count_optimized_nodes(result.model)["ConvTranspose"] == 0


def test_rows_without_window_have_the_bias() -> None:
    shape = layer((5, 7), (2, 2), (11, 15), channels=160, padding="VALID")
    data = hybrid(shape, "int8", per_channel=True)
    inputs = [np.asarray(x) for x in extremes(shape, asymmetric=True)]
    result = check(data, inputs=inputs, default_kernels=True)
    assert count_optimized_nodes(result.model)["ConvTranspose"] == 0
