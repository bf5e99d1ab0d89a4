"""REVERSE_V2 and REVERSE_SEQUENCE."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import add_input, check_outputs, folds
from tests.support import Build, Tensor
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
)
SEQUENCES = ("float32", "int16", "int32", "int64", "uint8")
SIZES = (2, 3, 5, 7, 4)


def reverse(m: Build, x: Tensor, axes: list[int]) -> Tensor:
    return m.op("REVERSE_V2", [x, m.constant(np.array(axes, np.int32))], [x.shape])[0]


@pytest.mark.parametrize(
    ("rank", "axes"),
    [
        (1, [0]),
        (2, [1]),
        (3, [-1]),
        (3, [1, 0]),
        (4, [1]),
        (4, [2, 1]),
        (4, [0, 1, 2, 3]),
        (5, [2, 3]),
    ],
)
def test_reverse_along_any_axes_equals_litert(rank: int, axes: list[int]) -> None:
    m = Build()
    check_outputs(m, reverse(m, add_input(m, SIZES[:rank]), axes))


def test_reverse_along_no_axis_is_identity() -> None:
    """An empty list of axes gives Identity, although LiteRT crashes."""
    m = Build()
    m.output(reverse(m, m.input([3, 5]), []))
    assert [node.op_type for node in convert(m.bytes()).model.graph.node] == ["Identity"]


@pytest.mark.parametrize("dtype", TYPES)
def test_reverse_of_every_type_equals_litert(dtype: str) -> None:
    m = Build()
    check_outputs(m, reverse(m, add_input(m, [3, 5, 7, 2], dtype), [2]))


def test_reverse_folds_and_moves_stored_integers() -> None:
    m = Build()
    folds(m, reverse(m, m.constant(np.arange(15, dtype=np.int32).reshape(3, 5)), [-1]))
    m = Build()
    result = check_outputs(
        m, reverse(m, add_input(m, [3, 5], "int8", scale=0.5, zero_point=3), [1])
    )
    assert [node.op_type for node in result.model.graph.node] == ["Slice"]


@pytest.mark.parametrize(
    ("rank", "time", "batch"),
    [(2, 0, 1), (2, 1, 0), (3, 0, 1), (3, 1, 0), (3, 2, 1), (4, 1, 3), (4, 3, 0), (4, 1, 2)],
)
@pytest.mark.parametrize("constant", [True, False])
def test_reverse_sequence_along_any_axes_equals_litert(
    rank: int, time: int, batch: int, *, constant: bool
) -> None:
    m = Build()
    x = add_input(m, SIZES[:rank])
    size = SIZES[batch]
    values = np.linspace(0, SIZES[time], size).astype(np.int32)
    lengths = m.constant(values) if constant else m.input([size], dtype="int32", name="lengths")
    (y,) = m.op("REVERSE_SEQUENCE", [x, lengths], [x.shape], seq_dim=time, batch_dim=batch)
    check_outputs(m, y, ranges={"lengths": (0, SIZES[time])})


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("dtype", SEQUENCES)
def test_reverse_sequence_of_every_type_equals_litert(dtype: str, index: str) -> None:
    m = Build()
    x = add_input(m, [3, 5, 2], dtype)
    lengths = m.input([3], dtype=index, name="lengths")
    (y,) = m.op("REVERSE_SEQUENCE", [x, lengths], [x.shape], seq_dim=1, batch_dim=0)
    check_outputs(m, y, ranges={"lengths": (0, 5)})


@pytest.mark.parametrize(
    ("time", "batch", "lengths", "reason"),
    [
        (1, 1, [0, 1, 2, 3, 3], "axes from 0 to 1, got 1 and 1"),
        (2, 1, [0, 1, 2, 3, 3], "axes from 0 to 1, got 2 and 1"),
        (0, -1, [0, 1, 2, 3, 3], "axes from 0 to 1, got 0 and -1"),
        (0, 1, [0, 1, 2, 3], r"int32\[5\], got int32\[4\]"),
        (0, 1, [0, 1, 2, 3, 4], "lengths must be between 0 and 3"),
        (0, 1, [0, 1, 2, 3, -1], "lengths must be between 0 and 3"),
        (0, 1, [0.0] * 5, "int32 or int64, got float32"),
    ],
)
def test_reverse_sequence_refuses_unsupported_axes_and_lengths(
    time: int, batch: int, lengths: list[int], reason: str
) -> None:
    m = Build()
    inputs = [m.input([3, 5]), m.constant(lengths)]
    m.output(*m.op("REVERSE_SEQUENCE", inputs, [[3, 5]], seq_dim=time, batch_dim=batch))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())


@pytest.mark.parametrize(
    ("axes", "made", "reason"),
    [
        ([2], [3, 5], "below 2, got 2"),
        ([1, -1], [3, 5], "must differ from each other"),
        ([-3], [3, 5], "at least -2"),
    ],
)
def test_reverse_refuses_invalid_axes(axes: list[int], made: list[int], reason: str) -> None:
    m = Build()
    m.output(*m.op("REVERSE_V2", [m.input([3, 5]), m.constant(axes)], [made]))
    with pytest.raises(ConversionError, match=reason):
        convert(m.bytes())
