"""passes/patterns/fuse_list_assignment.py: assignment of an item in a list that is a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check
from tflite2onnx.passes.patterns.fuse_list_assignment import fuse_list_assignment
from tflite2onnx.reader.model import read_model

SHAPE = (7, 3, 5)
ITEM = (1, 3, 5)


def int32(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


def build_set_item(  # noqa: PLR0913 - each is a choice
    *,
    step: int = 1,
    before: int = -1,
    after: int = 0,
    begin: int = 0,
    rest: int = -1,
    axis: int = 0,
    shape: tuple[int, ...] = SHAPE,
    item: tuple[int, ...] = ITEM,
    swapped: bool = False,
    other: bool = False,
    activation: str = "NONE",
    dtype: str = "float32",
    guessed: bool = False,
) -> Build:
    """Return `items[index] = item` as TFLite's converter writes it, or a variant of it.

    The declared sizes of the list and of the item may be guesses.
    """
    m = Build()
    fields: dict[str, Any] = {"dtype": dtype}
    if dtype == "int8":
        fields |= {"scale": 0.5, "zero_point": 3}

    def unknown() -> Tensor:
        return m.tensor([1, 1, 1], shape_signature=[-1, -1, -1], **fields)

    items = m.input(SHAPE, name="items", **fields)
    if guessed:
        (items,) = m.op("RESHAPE", [items, m.constant(int32(*SHAPE))], [unknown()])
    update = m.input(item, name="item", **fields)
    if guessed:
        (update,) = m.op("RESHAPE", [update, m.constant(int32(*item))], [unknown()])
    index = m.input([], dtype="int32", name="index")
    (following,) = m.op("ADD", [index, m.constant(np.array(step, np.int32))], [[]])

    def add_leading(number: Tensor, rest: int) -> Tensor:
        (first,) = m.op("RESHAPE", [number, m.constant(int32(1))], [[1]])
        return m.op("CONCATENATION", [first, m.constant(int32(rest, rest))], [[3]], axis=0)[0]

    def add_slice(of: Tensor, begin: Tensor, size: Tensor) -> Tensor:
        return m.op("SLICE", [of, begin, size], [unknown()])[0]

    head = add_slice(items, m.constant(int32(begin, 0, 0)), add_leading(index, before))
    source = m.op("NEG", [items], [SHAPE])[0] if other else items
    tail = add_slice(source, add_leading(following, after), m.constant(int32(rest, -1, -1)))
    parts = [tail, update, head] if swapped else [head, update, tail]
    made = unknown() if guessed else m.tensor(shape, **fields)
    m.output(*m.op("CONCATENATION", parts, [made], axis=axis, fused_activation_function=activation))
    return m


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8"])
@pytest.mark.parametrize("guessed", [False, True])
@pytest.mark.parametrize("axis", [0, -3])
def test_assignment_becomes_dynamic_update_slice(axis: int, dtype: str, guessed: bool) -> None:  # noqa: FBT001
    data = build_set_item(axis=axis, dtype=dtype, guessed=guessed).bytes()
    codes = [op.code for op in fuse_list_assignment(read_model(data).graphs[0]).ops]
    assert codes[-1] == "DYNAMIC_UPDATE_SLICE"
    for index in (0, 3, 6):
        check(data, ranges={"index": (index, index)})


def test_the_declared_shape_of_the_result_is_not_read() -> None:
    data = build_set_item(shape=(1,)).bytes()
    check(data, ranges={"index": (3, 3)}, declared=False)


@pytest.mark.parametrize(
    "options",
    [
        {"step": 2},
        {"step": 0},
        {"before": 3},
        {"after": 1},
        {"begin": 1},
        {"rest": 2},
        {"item": (2, 3, 5)},
        {"swapped": True},
        {"other": True},
        {"activation": "RELU"},
        {"axis": 1},
        {"guessed": True, "item": (2, 3, 5)},
    ],
    ids=str,
)
def test_assignments_of_several_or_moved_items_stay(options: dict[str, Any]) -> None:
    graph = read_model(build_set_item(**options).bytes()).graphs[0]
    assert [op.code for op in fuse_list_assignment(graph).ops] == [op.code for op in graph.ops]
