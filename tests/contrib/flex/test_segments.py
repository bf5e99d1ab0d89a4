"""Reductions of segments: SEGMENT_SUM, and UNSORTED_SEGMENT_SUM and its variants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.indexing.test_scatter import refusal
from tests.op.ports import check_outputs
from tests.support import Build


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("name", ["SUM", "PROD", "MAX", "MIN"])
@pytest.mark.parametrize(
    ("shape", "numbers"),
    [((5,), [2, 0, -1, 2, 2]), ((5, 3), [3, 3, 0, -7, 1]), ((2, 3, 5), [[0, 3, 0], [1, -2, 3]])],
)
@pytest.mark.parametrize("constant", [True, False])
def test_unsorted_segments_equal_litert(
    shape: tuple[int, ...], numbers: list[Any], name: str, dtype: str, *, constant: bool
) -> None:
    m = Build()
    values = np.array(numbers, np.int32)
    data = m.input(shape, dtype=dtype)
    where = m.constant(values) if constant else m.input(values.shape, dtype="int32")
    made = [6, *shape[values.ndim :]]
    (y,) = m.op(f"UNSORTED_SEGMENT_{name}", [data, where, m.constant(6)], [made])
    given = (np.arange(np.prod(shape)).reshape(shape) * 7 % 11 - 5).astype(dtype)
    check_outputs(m, y, inputs=[given] if constant else [given, values])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)], ids=str)
def test_segment_sum_equals_litert(shape: tuple[int, ...], dtype: str) -> None:
    m = Build()
    data = m.input(shape, dtype=dtype)
    inputs = [data, m.constant([0, 1, 1, 2, 2])]
    check_outputs(m, *m.op("SEGMENT_SUM", inputs, [[3, *shape[1:]]]))


@pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 2, 3)], ids=str)
def test_number_of_segments_is_data_dependent(shape: tuple[int, ...]) -> None:
    m = Build()
    data, numbers = m.input(shape), m.input([5], dtype="int32")
    (y,) = m.op("SEGMENT_SUM", [data, numbers], [m.tensor([None, *shape[1:]])])
    (double,) = m.op("ADD", [y, y], [m.tensor([None, *shape[1:]])])
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = check_outputs(m, double, inputs=[values, np.array([0, 1, 1, 2, 2], np.int32)])
    sizes = result.model.graph.output[0].type.tensor_type.shape.dim
    assert [size.dim_param or size.dim_value for size in sizes] == [
        f"tensor_{y.index}_0",
        *shape[1:],
    ]


def test_segments_refuse_numbers_out_of_range() -> None:
    x = (3, 5)
    code = "UNSORTED_SEGMENT_SUM"
    assert "must be less than 4, got 4" in refusal(code, [x, [0, 4, 1], 4], [4, 5])
    assert "must be less than -1, got -1" in refusal(code, [x, [-1, -1, -1], -1], [4, 5])
    assert "at least one axis, got 0" in refusal(code, [x, 0, 4], [4, 3, 5])
    assert "int32[3], got int32[2]" in refusal(code, [x, [0, 1], 4], [4, 5])
    assert "must have one axis, got 2" in refusal("SEGMENT_SUM", [x, [[0, 1, 1, 1, 1]] * 3], [2])
    assert "must rise from 0 in steps of 0 or 1" in refusal("SEGMENT_SUM", [x, [0, 2, 3]], [4, 5])
    assert "must rise from 0 in steps of 0 or 1" in refusal("SEGMENT_SUM", [x, [1, 2, 3]], [4, 5])
