"""BUCKETIZE: the index of the interval of each element."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

BOUNDARIES = [-3.0, -1.5, 0.0, 0.0, 4.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 5, 7)], ids=str)
def test_bucketize_of_every_type_equals_litert(shape: tuple[int, ...], dtype: str) -> None:
    m = Build()
    x = m.input(shape, dtype=dtype, name="x")
    (y,) = m.op("BUCKETIZE", [x], [shape], dtype="int32", boundaries=BOUNDARIES)
    check_outputs(m, y, ranges={"x": (-6, 6)})


def test_numbers_on_boundaries_equal_litert() -> None:
    numbers = [*BOUNDARIES, -0.0, np.nextafter(np.float32(-3), np.float32(-9)), np.inf, -np.inf]
    x = np.array([*numbers, np.nan], np.float32)
    m = Build()
    (y,) = m.op("BUCKETIZE", [m.input(x.shape)], [x.shape], dtype="int32", boundaries=BOUNDARIES)
    check_outputs(m, y, inputs=[x])


def test_large_integers_are_rounded() -> None:
    m = Build()
    x = np.array([2**24 - 1, 2**24, 2**24 + 1, 2**24 + 2], np.int32)
    boundaries = [float(2**24), float(2**24 + 2)]
    (y,) = m.op(
        "BUCKETIZE", [m.input([4], dtype="int32")], [[4]], dtype="int32", boundaries=boundaries
    )
    check_outputs(m, y, inputs=[x])


def test_bucketize_without_boundaries_is_expand() -> None:
    m = Build()
    m.output(*m.op("BUCKETIZE", [m.input([3, 5])], [[3, 5]], dtype="int32", boundaries=[]))
    model = convert(m.bytes()).model
    assert [node.op_type for node in model.graph.node] == ["Expand"]


def test_refuses_unsupported_types_and_unsorted_boundaries() -> None:
    m = Build()
    for given, made, boundaries in (
        ("float32", "int64", BOUNDARIES),
        ("int16", "int32", BOUNDARIES),
        ("float32", "int32", [1.0, 0.0]),
    ):
        x = m.input([3], dtype=given)
        m.output(*m.op("BUCKETIZE", [x], [[3]], dtype=made, boundaries=boundaries))
    with pytest.raises(ConversionError) as error:
        convert(m.bytes())
    reasons = str(error.value)
    assert "must be int32, got int64" in reasons
    assert "float32, float64, int32 or int64, got int16" in reasons
    assert "boundaries must be sorted, got [1.0, 0.0]" in reasons
