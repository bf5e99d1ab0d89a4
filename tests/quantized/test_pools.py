"""Pooling of stored integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.quantized.layers import LIMITS
from tests.quantized.values import check_integers
from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tflite2onnx.convert import convert

TYPES = {"uint8": (0.03, 131), "int8": (0.03, -7), "int16": (0.0002, 0)}
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
KERNELS = {"AVERAGE_POOL_2D": "QLinearAveragePool", "MAX_POOL_2D": "MaxPool"}


def build_pool(
    code: str,
    dtype: str,
    activation: str = "NONE",
    kernel: tuple[int, int] = (2, 3),
    padding: str = "SAME",
) -> bytes:
    """Return a model that pools [2, 5, 7, 3]."""
    scale, zero = TYPES[dtype]
    rows, columns = (5, 7) if padding == "SAME" else (6 - kernel[0], 8 - kernel[1])
    m = Build()
    x = m.input([2, 5, 7, 3], dtype=dtype, scale=scale, zero_point=zero)
    options: dict[str, Any] = {
        "filter_height": kernel[0],
        "filter_width": kernel[1],
        "stride_h": 1,
        "stride_w": 1,
        "padding": padding,
        "fused_activation_function": activation,
    }
    m.output(*m.op(code, [x], [[2, rows, columns, 3]], **options))
    return m.bytes()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_maxima_equal_litert_with_every_activation(dtype: str, activation: str) -> None:
    """The maximum of stored integers equals LiteRT's, with every activation."""
    for padding in ("SAME", "VALID"):
        check(build_pool("MAX_POOL_2D", dtype, activation, padding=padding))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", [(1, 2), (2, 2), (2, 3), (3, 3), (5, 7)], ids=str)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_averages_of_16_bits_equal_litert(
    kernel: tuple[int, int], padding: str, activation: str
) -> None:
    """int16 averages equal LiteRT's: halves are rounded away from zero."""
    check(build_pool("AVERAGE_POOL_2D", "int16", activation, kernel, padding))
    for extreme in LIMITS["int16"]:
        inputs = [np.full([2, 5, 7, 3], extreme, np.int16)]
        check(build_pool("AVERAGE_POOL_2D", "int16", activation, kernel, padding), inputs=inputs)


@pytest.mark.parametrize("kernel", [(1, 2), (2, 2), (2, 3), (3, 3), (5, 7)], ids=str)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_averages_of_8_bits_equal_litert(dtype: str, padding: str, kernel: tuple[int, int]) -> None:
    """Averages equal LiteRT's: halves are rounded away from the integer 0."""
    data = build_pool("AVERAGE_POOL_2D", dtype, kernel=kernel, padding=padding)
    for activations in ("auto", "int8", "uint8"):
        check(data, activations=activations)


@pytest.mark.parametrize("size", [2, 6, 8, 10, 16])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_every_half_is_rounded_as_by_litert(dtype: str, size: int) -> None:
    """The averages are all halves, and the numbers next to them."""
    low, high = LIMITS[dtype]
    sums = [
        size * size * half // 2 + n for half in range(2 * low + 1, 2 * high, 2) for n in (-1, 0, 1)
    ]
    windows = np.array([_split_total(total, size * size) for total in sums])
    x = windows.reshape(1, -1, size, size).transpose(0, 2, 3, 1).astype(dtype)
    m, (scale, zero) = Build(), TYPES[dtype]
    shape = [1, 1, 1, len(sums)]
    y = m.tensor(shape, dtype=dtype, scale=scale, zero_point=zero)
    sides = ("filter_height", "filter_width", "stride_h", "stride_w")
    window: dict[str, Any] = dict.fromkeys(sides, size)
    image = m.input(list(x.shape), dtype=dtype, scale=scale, zero_point=zero)
    m.output(*m.op("AVERAGE_POOL_2D", [image], [y], padding="VALID", **window))
    # int8 is stored with an offset of 128, where half a step is at the limit of float32.
    large = dtype == "int8" and size * size >= 128
    result = check(m.bytes(), inputs=[x], steps=int(large), random_layouts=[])
    assert count_optimized_nodes(result.model)["QLinearAveragePool"] == 1


def _split_total(total: int, count: int) -> list[int]:
    """Return `count` nearly equal integers with this sum."""
    each, more = divmod(total, count)
    return [each + 1] * more + [each] * (count - more)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("code", KERNELS)
@pytest.mark.parametrize("dtype", TYPES)
def test_output_scales_of_pools_are_ignored(dtype: str, code: str, activation: str) -> None:
    """Kernels use the input scale for output and activation, and ignore the output scale."""
    (scale, zero), (low, high) = TYPES[dtype], LIMITS[dtype]
    m = Build()
    x = m.input([2, 5, 7, 3], dtype=dtype, scale=scale, zero_point=zero)
    y = m.tensor([2, 5, 7, 3], dtype=dtype, scale=1.7 * scale, zero_point=zero // 2)
    m.output(
        *m.op(
            code,
            [x],
            [y],
            filter_height=3,
            filter_width=3,
            stride_h=1,
            stride_w=1,
            padding="SAME",
            fused_activation_function=activation,
        )
    )
    generator = np.random.default_rng(0)
    images = generator.integers(low, high, (2, 5, 7, 3), endpoint=True).astype(dtype)
    check_integers(m.bytes(), [images], steps=int(code == "AVERAGE_POOL_2D"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_averages_with_activations_are_within_a_step(dtype: str, activation: str) -> None:
    check(build_pool("AVERAGE_POOL_2D", dtype, activation), steps=1)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("code", KERNELS)
def test_pools_become_integer_kernels(code: str, dtype: str) -> None:
    left = count_optimized_nodes(convert(build_pool(code, dtype)).model)
    assert left[KERNELS[code]] == 1, left
    assert left["AveragePool"] == 0, left
