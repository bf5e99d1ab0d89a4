"""Rows of integers that steps of a layer multiply by the same weights are one product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tflite2onnx import convert

ROWS, FEATURES, WIDTH = 6, 5, 4


def build(dtype: str = "int8", *, others: tuple[int, ...] = (), rows: int = ROWS) -> bytes:
    """Return the model of products of the rows of a tensor, in different scales.

    The rows `others` are multiplied by other weights.
    """
    m = Build()
    rng = np.random.default_rng(0)

    def make_weights() -> Any:
        data = rng.integers(-127, 128, (WIDTH, FEATURES)).astype(np.int8)
        scale = rng.uniform(0.005, 0.02, WIDTH).astype(np.float32)
        return m.constant(data, scale=scale, zero_point=np.zeros(WIDTH, np.int64))

    x = m.input([rows, FEATURES], dtype=dtype, scale=0.02, zero_point=3)
    fields: dict[str, Any] = {"dtype": dtype, "scale": 0.02, "zero_point": 3}
    parts = m.op("UNPACK", [x], [m.tensor([FEATURES], **fields) for _ in range(rows)], num=rows)
    weights, other = make_weights(), make_weights()
    for i, part in enumerate(parts):
        row = m.op("RESHAPE", [part], [m.tensor([1, FEATURES], **fields)], new_shape=[1, FEATURES])
        y = m.tensor([1, WIDTH], dtype=dtype, scale=0.01 + i / 500, zero_point=i - 2)
        m.output(*m.op("FULLY_CONNECTED", [*row, other if i in others else weights], [y]))
    return m.bytes()


@pytest.mark.parametrize("others", [(), (0,)])
def test_products_of_the_rows_are_one_gemm(others: tuple[int, ...]) -> None:
    result: Any = check(build(others=others), seeds=range(8), default_kernels=True)
    counts = count_optimized_nodes(result.model)
    assert counts["QGemm"] == 1 + len(others)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (build(others=(0, 2, 4, 5)), {}),
        (build(rows=2), {}),
        (build(), {"forms": "canonical"}),
        (build(), {"opset": 12}),
    ],
)
def test_other_rows_stay(model: bytes, options: dict[str, Any]) -> None:
    nodes = [n.op_type for n in convert(model, **options).model.graph.node]
    assert nodes.count("Gemm") + nodes.count("MatMul") >= 2
