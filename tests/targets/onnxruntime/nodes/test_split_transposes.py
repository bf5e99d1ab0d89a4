"""Transposes that move the last axis and others are two fast ones in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes, optimize_model


def build(shape: list[int], order: list[int], dtype: str = "float32") -> bytes:
    """Return the model of a TRANSPOSE between two other operators."""
    m = Build()
    x = m.op("ABS", [m.input(shape, dtype=dtype)], [m.tensor(shape, dtype=dtype)])[0]
    moved = [shape[axis] for axis in order]
    axes = m.constant(np.array(order, np.int32))
    y = m.op("TRANSPOSE", [x, axes], [m.tensor(moved, dtype=dtype)])[0]
    m.output(*m.op("ABS", [y], [m.tensor(moved, dtype=dtype)]))
    return m.bytes()


def count(shape: list[int], order: list[int], dtype: str = "float32", **options: Any) -> int:
    result: Any = check(build(shape, order, dtype), **options)
    return count_optimized_nodes(result.model)["Transpose"]


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ([1, 64, 32, 4], [0, 3, 2, 1]),
        ([1, 4, 32, 64], [0, 3, 2, 1]),
        ([16, 64, 8], [2, 1, 0]),
        ([16, 3, 128], [2, 1, 0]),
        ([2, 3, 50, 20], [1, 3, 0, 2]),
        ([1, 4, 2, 2, 16, 32], [0, 1, 4, 2, 5, 3]),
        ([1, 32, 4, 2, 4, 8], [0, 3, 5, 2, 4, 1]),
        ([4, 1, 32, 64], [3, 1, 2, 0]),
        ([4, 5, 6, 8, 9], [3, 4, 2, 0, 1]),
        ([12, 17, 24], [2, 1, 0]),
        ([4, 1024, 4], [2, 1, 0]),
    ],
)
def test_slow_transposes_are_two(shape: list[int], order: list[int]) -> None:
    assert count(shape, order) == 2


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ([1, 64, 32, 4], [0, 2, 3, 1]),  # one axis moves
        ([1, 64, 32, 4], [0, 2, 1, 3]),  # the last axis stays
        ([1, 1, 64, 128], [3, 1, 0, 2]),  # two axes
        ([1, 8, 8, 4], [0, 3, 2, 1]),  # few elements
        ([3, 1024, 3], [2, 1, 0]),  # small blocks
        ([13, 17, 20], [2, 1, 0]),  # no small factors
    ],
)
def test_others_are_one(shape: list[int], order: list[int]) -> None:
    assert count(shape, order) == 1


def test_canonical_transposes_are_one() -> None:
    assert count([16, 64, 8], [2, 1, 0], forms="canonical") == 1


def test_integers_are_moved_once() -> None:
    assert count([16, 64, 8], [2, 1, 0], "int32") == 1


@pytest.mark.parametrize("shape", [[1, 64, 1, 200], [1, 200, 1, 64], [3, 20, 1, 50]])
def test_axes_of_one_do_not_move(shape: list[int]) -> None:
    result: Any = check(build(shape, [0, 3, 2, 1]))
    (node,) = (n for n in optimize_model(result.model).graph.node if n.op_type == "Transpose")
    assert list(node.attribute[0].ints) == [0, 3, 1, 2]


def test_reshapes_read_any_axes() -> None:
    m = Build()
    x = m.op("ABS", [m.input([1, 64, 1, 200])], [m.tensor([1, 64, 1, 200])])[0]
    order = m.constant(np.array([0, 3, 2, 1], np.int32))
    y = m.op("TRANSPOSE", [x, order], [m.tensor([1, 200, 1, 64])])[0]
    z = m.op("RESHAPE", [y], [m.tensor([1, 100, 128])], new_shape=[1, 100, 128])[0]
    m.output(*m.op("ABS", [z], [m.tensor([1, 100, 128])]))
    result: Any = check(m.bytes())
    perms = [[*n.attribute[0].ints] for n in result.model.graph.node if n.op_type == "Transpose"]
    assert [0, 3, 2, 1] not in perms
