"""PRELU of 8-bit integers: a table of the results of LiteRT's kernel, which rounds twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tflite2onnx import convert, verify
from tflite2onnx.options import IoLayout


def build_prelu(dtype: str, shape: list[int], slopes: list[int], seed: int) -> bytes:
    """Return PRELU with random scales and zero points; the slopes are constant."""
    generator = np.random.default_rng(seed)
    info = np.iinfo(dtype)

    def draw() -> dict[str, Any]:
        zero_point = int(generator.integers(info.min, info.max))
        return {"scale": float(generator.uniform(0.01, 0.1)), "zero_point": zero_point}

    m = Build()
    x = m.input(shape, dtype=dtype, name="x", **draw())
    alpha = generator.integers(info.min, info.max + 1, slopes).astype(dtype)
    y = m.tensor(shape, dtype=dtype, name="y", **draw())
    m.output(*m.op("PRELU", [x, m.constant(alpha, **draw())], [y]))
    return m.bytes()


@pytest.mark.parametrize("io_layout", ["tflite", "onnx"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("shape", "slopes"),
    [([1, 9, 7, 16], [1, 1, 16]), ([2, 6, 16], [16]), ([1, 4, 5, 6], [4, 5, 6]), ([3, 40], [1])],
)
def test_integers_equal_litert(
    dtype: str, shape: list[int], slopes: list[int], io_layout: IoLayout
) -> None:
    """Each integer equals that of LiteRT's plain kernel, and the graph has no PRelu."""
    for seed in range(3):
        data = build_prelu(dtype, shape, slopes, seed)
        result = convert(data, io_layout=io_layout)
        assert "PRelu" not in {node.op_type for node in result.model.graph.node}
        (output,) = verify(data, result, samples=2).outputs
        assert (output.largest, output.kernels) == (0, "")


def test_many_slopes_make_no_table() -> None:
    """A table of more than 1024 slopes would be large."""
    data = build_prelu("int8", [1, 11, 10, 12], [11, 10, 12], 0)
    result = convert(data)
    assert "PRelu" in {node.op_type for node in result.model.graph.node}
    assert verify(data, result).ok
