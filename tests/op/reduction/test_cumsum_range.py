"""RANGE and CUMSUM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SIZES = (2, 3, 5, 7)

RANGES: list[tuple[float, float, float, str, int]] = [
    (0, 7, 1, "int32", 7),
    (3, -8, -3, "int32", 4),
    (3, 10, 4, "int64", 2),
    (5, 5, 1, "int32", 0),
    (0, 1, 0.1, "float32", 10),
    (-1.5, 2.25, 0.3, "float32", 13),
    (2, -3, -0.7, "float32", 8),
]


@pytest.mark.parametrize(("start", "limit", "step", "dtype", "count"), RANGES)
def test_range_of_constants_folds(
    start: float, limit: float, step: float, dtype: str, count: int
) -> None:
    m = Build()
    inputs = [m.constant(np.array(number, dtype)) for number in (start, limit, step)]
    (y,) = m.op("RANGE", inputs, [[count]])
    if count:
        folds(m, y)
    else:
        check_outputs(m, *m.op("ADD", [y, add_input(m, [0], dtype)], [[0]]))


def test_quantized_ranges_are_computed_with_stored_integers() -> None:
    """RANGE of tensors with scales is not folded, and computes with the stored integers."""
    m = Build()
    inputs = [m.constant(np.array(number, np.int32), scale=1.0) for number in (1, 9, 2)]
    check_outputs(m, *m.op("RANGE", inputs, [[4]]), inputs=[])


@pytest.mark.parametrize(
    ("numbers", "dtype", "reason"),
    [
        ((0, 5, 0), "int32", "from the start 0 to the limit 5, got 0"),
        ((0, 5, -1), "int32", "from the start 0 to the limit 5, got -1"),
        ((5, 0, 1), "float32", "from the start 5.0 to the limit 0.0, got 1.0"),
        ((0, 5, 1), "int16", "float32, int32 or int64, got int16"),
    ],
)
def test_range_refuses_steps_away_from_the_limit(numbers: Any, dtype: str, reason: str) -> None:
    m = Build()
    inputs = [
        m.input([], dtype=dtype) if n is None else m.constant(np.array(n, dtype)) for n in numbers
    ]
    m.output(*m.op("RANGE", inputs, [[5]]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize(("rank", "axis"), [(1, 0), (2, -1), (3, 1), (4, 2), (4, -4)])
def test_cumsum_along_every_axis_equals_litert(
    rank: int, axis: int, dtype: str, *, exclusive: bool, reverse: bool
) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank], dtype)
    (y,) = m.op("CUMSUM", [x, m.constant(axis)], [x.shape], exclusive=exclusive, reverse=reverse)
    check_outputs(m, y)


def test_cumsum_refuses_unsupported_axes_and_types() -> None:
    m = Build()
    m.output(*m.op("CUMSUM", [m.input([3, 5]), m.constant(2)], [[3, 5]]))
    m.output(*m.op("CUMSUM", [m.input([3, 5], dtype="int16"), m.constant(1)], [[3, 5]]))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "below 2, got 2" in reasons
    assert "float32, int32 or int64, got int16" in reasons
