"""targets/onnxruntime/forms/movement/split_slices.py: slices that take a tensor apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after, read_graph
from tflite2onnx import convert
from tflite2onnx.graph_text import write_graph
from tflite2onnx.targets.onnxruntime.forms.movement.split_slices import split_slices

split = eliminate_dead_after(split_slices)
SHAPE = (1, 2, 5, 2)
ALL = [(0, 0), (1, 1), (0, 1), (1, 0)]


def constants(m: Build, *lists: Sequence[int]) -> list[Tensor]:
    return [m.constant(np.array(each, np.int32)) for each in lists]


def spell_states(size: int) -> bytes:
    """Return negated states that are stored in one tensor."""
    m = Build()
    x = m.input((1, 2, size, 2))
    m.output(*(m.op("NEG", [take_strided(m, x, *at)], [[1, size]])[0] for at in ALL))
    return m.bytes()


def take_strided(m: Build, x: Tensor, i: int, j: int) -> Tensor:
    """Return x[:, i, :, j]."""
    bounds = constants(m, (0, i, 0, j), (0, i + 1, 0, j + 1), (1, 1, 1, 1))
    masks: dict[str, Any] = {"begin_mask": 5, "end_mask": 5, "shrink_axis_mask": 10}
    return m.op("STRIDED_SLICE", [x, *bounds], [[1, x.shape[2]]], **masks)[0]


def take(m: Build, x: Tensor, i: int, j: int) -> Tensor:
    """Return x[:, i : i + 1, :, j : j + 1]."""
    bounds = constants(m, (0, i, 0, j), (1, 1, 5, 1))
    return m.op("SLICE", [x, *bounds], [[1, 1, 5, 1]])[0]


def spell(slicer: Any, *places: tuple[int, int], **fields: Any) -> bytes:
    m = Build()
    x = m.input(SHAPE, **fields)
    taken = [slicer(m, x, *at) for at in places]
    m.output(*(m.op("ABS", [y], [y.shape])[0] for y in taken))
    return m.bytes()


def test_slices_become_transpose_and_split() -> None:
    before = """
        inputs %0: float32[1,2,5,2]
        %1: float32[1,5] = STRIDED_SLICE(%0, [0, 0, 0, 0], [0, 1, 0, 1], [1, 1, 1, 1])
        %2: float32[1,5] = STRIDED_SLICE(%0, [0, 1, 0, 1], [0, 2, 0, 2], [1, 1, 1, 1])
        %3: float32[1,5] = STRIDED_SLICE(%0, [0, 0, 0, 1], [0, 1, 0, 2], [1, 1, 1, 1])
        %4: float32[1,5] = STRIDED_SLICE(%0, [0, 1, 0, 0], [0, 2, 0, 1], [1, 1, 1, 1])
        %5: float32[1,5] = ABS(%1)
        %6: float32[1,5] = ABS(%2)
        %7: float32[1,5] = ABS(%3)
        %8: float32[1,5] = ABS(%4)
        return %5, %6, %7, %8
    """
    after = """
      inputs %0: float32[1,2,5,2]
      %1: float32[2,2,1,5] = TRANSPOSE(%0, [1, 3, 0, 2])
      %2: float32[4,1,5] = RESHAPE(%1)
      %3: float32[1,1,5], %4: float32[1,1,5], %5: float32[1,1,5], %6: float32[1,1,5] = SPLIT(0, %2)
      %7: float32[1,5] = RESHAPE(%3)
      %8: float32[1,5] = RESHAPE(%4)
      %9: float32[1,5] = RESHAPE(%5)
      %10: float32[1,5] = RESHAPE(%6)
      %11: float32[1,5] = ABS(%7)
      %12: float32[1,5] = ABS(%10)
      %13: float32[1,5] = ABS(%8)
      %14: float32[1,5] = ABS(%9)
      return %11, %12, %13, %14
    """
    check_pass(split, read_graph(spell(take_strided, *ALL)), before, after)


@pytest.mark.parametrize("slicer", [take_strided, take])
@pytest.mark.parametrize("fields", [{}, {"dtype": "int8", "scale": 0.1, "zero_point": 3}], ids=str)
def test_results_equal_litert_without_slice_nodes(slicer: Any, fields: dict[str, Any]) -> None:
    data = spell(slicer, *ALL, **fields)
    check(data)
    nodes = count_optimized_nodes(convert(data).model)
    assert "Slice" not in nodes
    assert nodes["Split"] == 1, nodes


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_only_slices_along_the_last_axis_are_split(axis: int) -> None:
    """Items along another axis than the last consist of rows, which Slice copies."""
    m, shape = Build(), [2, 2, 2]
    shape[axis] = count = 4 if axis == 2 else 3
    x = m.input(shape)
    size = [1 if i == axis else n for i, n in enumerate(shape)]
    begins = [[i if each == axis else 0 for each in range(3)] for i in range(count)]
    items = [m.op("SLICE", [x, *constants(m, begin, size)], [size])[0] for begin in begins]
    m.output(*(m.op("ABS", [y], [y.shape])[0] for y in items))
    check(m.bytes())
    nodes = {node.op_type for node in convert(m.bytes()).model.graph.node}
    assert ("Split" in nodes) == (axis == 2)


@pytest.mark.parametrize(
    "places",
    [ALL[:2], ALL[:3], [*ALL, ALL[0]], [*ALL[:3], ALL[0]]],
    ids=["two", "not all", "one twice", "one twice, not all"],
)
def test_incomplete_or_repeated_items_stay_slices(places: list[tuple[int, int]]) -> None:
    data = spell(take_strided, *places)
    graph = read_graph(data)
    check_unchanged(split_slices, graph)
    check(data)


def test_numbers_of_a_vector_need_no_transpose() -> None:
    """Items of a vector are contiguous, so that no Transpose is needed."""
    m = Build()
    x = m.input((4,))
    parts = [m.op("SLICE", [x, *constants(m, (i,), (1,))], [[1]])[0] for i in (2, 0, 3, 1)]
    m.output(*(m.op("ABS", [y], [y.shape])[0] for y in parts))
    check(m.bytes())
    text = write_graph(split(read_graph(m.bytes())))
    assert "SPLIT" in text
    assert "TRANSPOSE" not in text


def test_slices_of_a_large_tensor_stay() -> None:
    """The numbers of a large tensor are copied twice, by the Transpose and the Split."""
    m = Build()
    x = m.input((1 << 11, 4))
    parts = [
        m.op("SLICE", [x, *constants(m, (0, i), (1 << 11, 1))], [[1 << 11, 1]])[0] for i in range(4)
    ]
    m.output(*parts)
    graph = read_graph(m.bytes())
    check_unchanged(split_slices, graph)


def test_slices_with_computed_bounds_stay() -> None:
    m = Build()
    x, begin = m.input((4, 3)), m.input([2], dtype="int32")
    parts = [m.op("SLICE", [x, begin, *constants(m, (4, 1))], [[4, 1]])[0] for _ in range(3)]
    m.output(*(m.op("ABS", [y], [y.shape])[0] for y in parts))
    graph = read_graph(m.bytes())
    check_unchanged(split_slices, graph)


def test_ranges_and_mixed_axes_stay() -> None:
    """Ranges of indices, and slices along different axes, stay."""
    m = Build()
    x = m.input((4, 6))
    parts = [m.op("SLICE", [x, *constants(m, (0, i), (4, 2))], [[4, 2]])[0] for i in (0, 2, 4)]
    x = m.input((2, 3))
    parts += [
        m.op("SLICE", [x, *constants(m, begin, size)], [size])[0]
        for begin, size in [((0, 0), (1, 3)), ((1, 0), (1, 3)), ((0, 0), (2, 1))]
    ]
    m.output(*(m.op("ABS", [y], [y.shape])[0] for y in parts))
    graph = read_graph(m.bytes())
    check_unchanged(split_slices, graph)
    check(m.bytes())
