"""contrib/tensor_lists/lower_tensor_lists.py: TensorFlow's lists become tensors.

LiteRT runs no Flex operators, so the reference is LiteRT's result for the same model with tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, Tensor, check, difference, run_onnx
from tests.support.control import ROUNDS, loop, number, op
from tests.support.flex import flex_options
from tests.support.keras import BATCH, Keras, add_list_operator
from tflite2onnx import convert
from tflite2onnx.errors import UnsupportedOperators

if TYPE_CHECKING:
    from tests.support import Subgraph
    from tflite2onnx.result import Result

SHAPE, ITEM = [7, 3, 5], [3, 5]


def check_lists(plain: Build, listed: Build, *, fixed: bool = True) -> Any:
    """Compare a model with lists with LiteRT's run of the equivalent model with tensors."""
    given, expected = listed.bytes(), plain.bytes()
    for static in (True, False) if fixed else (False,):
        result: Any = check(
            expected,
            ranges={"float32": (-1, 1)},
            convert=lambda _, static=static: convert(given, static=static),
        )
    if not fixed:
        assert convert(given, static=True).inputs
    return result


def node_types_of(result: Result) -> set[str]:
    return {node.op_type for node in result.model.graph.node}


# Loops of Keras


@pytest.mark.parametrize(
    "form",
    [
        Keras(),
        Keras(last=True),
        Keras(times=1),
        Keras(batch=1),
        Keras(added_biases=True),
        Keras("GRU"),
        Keras("GRU", last=True),
        Keras("GRU-before"),
        Keras("RNN"),
    ],
    ids=str,
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_recurrent_layer_is_one_node(form: Keras, *, turned: bool) -> None:
    """A Keras layer with lists becomes one recurrent node, also with a dynamic batch."""
    listed = replace(form, listed=True, turned=turned, batch=None if turned else form.batch)
    result = check_lists(replace(form, turned=turned).model(), listed.model(), fixed=not turned)
    assert form.cell.partition("-")[0] in node_types_of(result)
    assert "Loop" not in node_types_of(result)
    assert all(end.symbols == ({0: "batch"} if turned else {}) for end in result.inputs)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_loops_of_lists_with_unknown_cells_stay_loops(*, last: bool, turned: bool) -> None:
    form = Keras(squash="ABS", last=last, turned=turned)
    listed = replace(form, listed=True, batch=None if turned else BATCH)
    assert "Loop" in node_types_of(check_lists(form.model(), listed.model(), fixed=not turned))


# Single operators


def variant(m: Subgraph) -> Tensor:
    return m.tensor([], dtype="variant")


def of_tensor(m: Subgraph, x: Tensor) -> Tensor:
    return add_list_operator(m, "FromTensor", [x, m.constant([-1] * (len(x.shape) - 1))])[0]


def add_stack(m: Subgraph, items: Tensor, shape: list[int]) -> Tensor:
    how = [items, m.constant([-1] * (len(shape) - 1))]
    return add_list_operator(m, "Stack", how, [m.tensor(shape)], num_elements=-1)[0]


def add_reserve(m: Subgraph, count: Tensor, sizes: list[int]) -> Tensor:
    return add_list_operator(m, "Reserve", [m.constant(np.array(sizes, np.int32)), count])[0]


def get(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    items = of_tensor(m, x)
    return add_list_operator(m, "GetItem", [items, i, m.constant([-1, 5])], [m.tensor(ITEM)])


def get_of_unknown_rank(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    (item,) = add_list_operator(m, "GetItem", [of_tensor(m, x), i, number(m, -1)], [m.tensor(None)])
    return m.op("NEG", [item], [ITEM])


def add_set_item(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    item = m.constant(np.ones(ITEM, np.float32))
    (items,) = add_list_operator(m, "SetItem", [of_tensor(m, x), i, item])
    return [add_stack(m, items, SHAPE)]


def reserve(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    (item,) = m.op("GATHER", [x, i], [ITEM])
    items = add_reserve(m, m.constant([4]), [-1, -1])
    for place in (2, 0):
        (items,) = add_list_operator(m, "SetItem", [items, number(m, place), item])
    return [add_stack(m, items, [4, *ITEM])]


def grow(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    """A list of one item, and one that the loop makes longer; items between are 0."""
    (item,) = m.op("GATHER", [x, i], [ITEM])
    items = add_reserve(m, m.constant([1]), [3, -1])
    for place in (i, number(m, 0), number(m, 2)):
        inputs = [items, place, item]
        (items,) = add_list_operator(m, "SetItem", inputs, resize_if_index_out_of_bounds=True)
    one = m.constant(np.array([8], np.float32))

    def append(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        counter, listed, value = xs
        options = [listed, counter, value]
        (listed,) = add_list_operator(inner, "SetItem", options, resize_if_index_out_of_bounds=True)
        return [op(inner, "ADD", counter, number(inner, 1)), listed, value]

    flags = add_reserve(m, number(m, 0), [1])
    _, flags, _ = loop(m, [number(m, 0), flags, one], append)
    return [add_stack(m, items, [4, *ITEM]), add_stack(m, flags, [ROUNDS, 1])]


def keep_list(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    """A loop that leaves a list as it is, which is read after the loop."""

    def count(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return [op(inner, "ADD", xs[0], number(inner, 1)), xs[1]]

    _, items = loop(m, [i, of_tensor(m, x)], count)
    return [add_stack(m, items, SHAPE)]


def gather(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    (places,) = m.op("RESHAPE", [i, m.constant([1])], [[1]])
    return add_list_operator(
        m, "Gather", [of_tensor(m, x), places, number(m, -1)], [m.tensor([1, *ITEM])]
    )


def push(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    options = [m.constant([3, 5]), number(m, -1)]
    (items,) = m.custom(
        "FlexEmptyTensorList", options, [variant(m)], flex_options("EmptyTensorList")
    )
    for place in (i, number(m, 1)):
        (item,) = m.op("GATHER", [x, place], [ITEM])
        (items,) = add_list_operator(m, "PushBack", [items, item])
    return [add_stack(m, items, [2, *ITEM])]


def pop(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    del i
    outputs = [variant(m), m.tensor(ITEM)]
    items, item = add_list_operator(m, "PopBack", [of_tensor(m, x), m.constant([3, 5])], outputs)
    return [add_stack(m, items, [6, *ITEM]), item]


def concat(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    del i
    leading = m.constant(np.zeros(0, np.int64))
    outputs = [m.tensor([21, 5]), m.tensor([7], dtype="int64")]
    items = of_tensor(m, x)
    return add_list_operator(m, "ConcatV2", [items, m.constant([-1, 5]), leading], outputs)


def add_length_and_shape(m: Build, x: Tensor, i: Tensor) -> list[Tensor]:
    del i
    items = of_tensor(m, x)
    (length,) = add_list_operator(m, "Length", [items], [m.tensor([], dtype="int32")])
    (shape,) = add_list_operator(m, "ElementShape", [items], [m.tensor([2], dtype="int64")])
    return [length, shape]


Array = np.ndarray[Any, Any]
Make = Callable[[Build, Tensor, Tensor], list[Tensor]]


def set_item(x: Array, i: int) -> Array:
    made = x.copy()
    made[i] = 1
    return made


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (get, lambda x, i: [x[i]]),
        (get_of_unknown_rank, lambda x, i: [-x[i]]),
        (add_set_item, lambda x, i: [set_item(x, i)]),
        (reserve, lambda x, i: [np.stack([x[i], 0 * x[0], x[i], 0 * x[0]])]),
        (
            grow,
            lambda x, i: [
                np.stack([x[i], 0 * x[0], x[i], x[i]]),
                np.full((ROUNDS, 1), np.float32(8)),
            ],
        ),
        (keep_list, lambda x, _: [x]),
        (gather, lambda x, i: [x[[i]]]),
        (push, lambda x, i: [np.stack([x[i], x[1]])]),
        (pop, lambda x, _: [x[:-1], x[-1]]),
        (concat, lambda x, _: [x.reshape(21, 5), np.full(7, 3)]),
        (add_length_and_shape, lambda *_: [np.array(7, np.int32), np.array([3, 5])]),
    ],
)
def test_list_operators_equal_numpy(make: Make, want: Callable[[Array, int], list[Array]]) -> None:
    m = Build()
    x, i = m.input(SHAPE, name="x"), m.input([], dtype="int32", name="i")
    m.output(*make(m, x, i))
    result = convert(m.bytes(), io_layout="tflite")
    data = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    for optimize in (True, False):
        made = run_onnx(result.model, {"x": data, "i": np.array(3, np.int32)}, optimize=optimize)
        for a, b in zip(want(data, 3), made, strict=True):
            assert not difference(a, b)


# Sizes


def build_loop(
    m: Build, *, listed: bool, batch: int | None, first: int | None = 5, grows: bool = False
) -> Build:
    """Return a loop that stores the cumulative sums of the columns of an input.

    `first` is the number of columns. A list that `grows` is empty at first.
    """
    x = m.input([batch, first, 3], name="x")
    sizes = [first or 1, batch or 1, 3]
    (columns,) = m.op("TRANSPOSE", [x, m.constant([1, 0, 2])], [m.tensor([first, batch, 3])])
    (shape,) = m.op("SHAPE", [columns], [[3]], out_type="int32", dtype="int32")
    (count,) = m.op(
        "STRIDED_SLICE", [shape, *(m.constant([n]) for n in (0, 1, 1))], [[]], shrink_axis_mask=1
    )
    (least,) = m.op("REDUCE_MIN", [columns, m.constant([0])], [m.tensor([batch, 3])])
    zero, zeros = number(m, 0), m.op("SUB", [least, least], [m.tensor([batch, 3])])[0]
    if listed:
        items = add_reserve(m, zero if grows else count, [-1, 3])
    else:
        (items,) = m.op("SUB", [columns, columns], [m.tensor([first, batch, 3])])

    def change(m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        i, total, items, columns, count = xs
        (column,) = m.op("GATHER", [columns, i], [m.tensor([batch, 3])])
        (total,) = m.op("ADD", [total, column], [m.tensor([batch, 3])])
        if listed:
            options: dict[str, Any] = {"resize_if_index_out_of_bounds": grows}
            (items,) = add_list_operator(m, "SetItem", [items, i, total], **options)
        else:
            (row,) = m.op("EXPAND_DIMS", [total, number(m, 0)], [m.tensor([1, batch, 3])])
            (first,) = m.op("RESHAPE", [i, m.constant([1])], [[1]])
            (place,) = m.op("CONCATENATION", [first, m.constant([0, 0])], [[3]], axis=0)
            (items,) = m.op("DYNAMIC_UPDATE_SLICE", [items, row, place], [m.tensor(sizes)])
        return [op(m, "ADD", i, number(m, 1)), total, items, columns, count]

    def goes_on(m: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        return m.op("LESS", [xs[0], xs[4]], [[]], dtype="bool")[0]

    _, total, items, *_ = loop(m, [zero, zeros, items, columns, count], change, goes_on)
    if listed:
        (items,) = add_list_operator(
            m, "Stack", [items, m.constant([-1, 3])], [m.tensor([first, batch, 3])]
        )
    m.output(total, items)
    return m


@pytest.mark.parametrize(("batch", "first"), [(None, 5), (2, None), (None, None)])
def test_dynamic_sizes_stay_dynamic(batch: int | None, first: int | None) -> None:
    plain = build_loop(Build(), listed=False, batch=2, first=5)
    listed = build_loop(Build(), listed=True, batch=batch, first=first)
    result = check_lists(plain, listed, fixed=False)
    assert result.inputs[0].symbols.keys() == {i for i, n in enumerate((batch, first)) if n is None}


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("size", ["of a tensor before", "of an item", "pushed"])
def test_items_may_have_a_size_that_no_input_has(size: str, *, grows: bool) -> None:
    """Items are the even rows, or all rows twice, of an input with any number of rows."""
    m = Build()
    x = m.input([None, 3], name="x")
    halved = size == "of a tensor before"
    if halved:
        bounds = [m.constant([0, 0]), m.constant([0, 0]), m.constant([2, 1])]
        made = m.tensor([None, 3])
        (rows,) = m.op("STRIDED_SLICE", [x, *bounds], [made], begin_mask=3, end_mask=3)
    else:
        rows = x

    def append(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        i, items, item = xs
        made = item
        if not halved:
            (made,) = inner.op("CONCATENATION", [item, item], [inner.tensor([None, 3])], axis=0)
        if size == "pushed":
            (items,) = add_list_operator(inner, "PushBack", [items, made])
        else:
            told = [items, i, made]
            (items,) = add_list_operator(
                inner, "SetItem", told, resize_if_index_out_of_bounds=grows
            )
        return [op(inner, "ADD", i, number(inner, 1)), items, item]

    if size == "pushed":
        options = [m.constant([-1, 3]), number(m, -1)]
        empty = flex_options("EmptyTensorList")
        (items,) = m.custom("FlexEmptyTensorList", options, [variant(m)], empty)
    else:
        items = add_reserve(m, number(m, 0 if grows else ROUNDS), [-1, 3])
    _, items, _ = loop(m, [number(m, 0), items, rows], append)
    shape = m.constant([-1, 3])
    stack = m.tensor([ROUNDS, None, 3])
    m.output(*add_list_operator(m, "Stack", [items, shape], [stack], num_elements=-1))
    result = convert(m.bytes(), io_layout="tflite")
    for count in (4, 7):
        data = np.random.default_rng(count).standard_normal((count, 3)).astype(np.float32)
        item = data[::2] if halved else np.concatenate([data, data])
        for optimize in (True, False):
            (have,) = run_onnx(result.model, {"x": data}, optimize=optimize)
            np.testing.assert_array_equal(have, np.stack([item] * ROUNDS))


def test_items_may_be_sums_of_inputs_of_dynamic_sizes() -> None:
    """The shape of a sum follows only after the sizes of both inputs are known to be equal."""
    m = Build()
    inputs = [m.input([3, None], name=name) for name in "xy"]
    items = add_reserve(m, number(m, ROUNDS), [-1, -1])

    def change(inner: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        i, items, x, y = xs
        (total,) = inner.op("ADD", [x, y], [inner.tensor([3, None])])
        (items,) = add_list_operator(inner, "SetItem", [items, i, total])
        return [op(inner, "ADD", i, number(inner, 1)), items, x, y]

    _, items, *_ = loop(m, [number(m, 0), items, *inputs], change)
    stack = m.tensor([ROUNDS, 3, None])
    m.output(*add_list_operator(m, "Stack", [items, m.constant([-1, -1])], [stack]))
    result = convert(m.bytes(), io_layout="tflite")
    for count in (4, 7):
        x, y = np.random.default_rng(count).standard_normal((2, 3, count)).astype(np.float32)
        (have,) = run_onnx(result.model, {"x": x, "y": y})
        np.testing.assert_array_equal(have, np.stack([x + y] * ROUNDS))


# Models that cannot be converted


def several_ranks(m: Build, x: Tensor) -> list[Tensor]:
    (item,) = m.op("RESHAPE", [x, m.constant([15])], [[15]])
    (items,) = add_list_operator(
        m, "SetItem", [add_reserve(m, number(m, 2), [3, 5]), number(m, 0), item]
    )
    return [add_stack(m, items, [2, 15])]


def several_sizes(m: Build, x: Tensor) -> list[Tensor]:
    items = add_reserve(m, number(m, 2), [3, 5])
    (items,) = add_list_operator(m, "SetItem", [items, number(m, 0), x])
    return add_list_operator(m, "Stack", [items, m.constant([3, 4])], [m.tensor([2, 3, 5])])


def add_unset_list(m: Build, x: Tensor) -> list[Tensor]:
    items = add_reserve(m, number(m, 2), [-1, 5])
    return [add_stack(m, items, [2, 3, 5]), x]


def unknown_operator(m: Build, x: Tensor) -> list[Tensor]:
    (items,) = add_list_operator(m, "Resize", [add_reserve(m, number(m, 2), [3, 5]), number(m, 3)])
    return [add_stack(m, items, [3, 3, 5]), x]


def add_unread_list(m: Build, x: Tensor) -> list[Tensor]:
    return add_list_operator(m, "SetItem", [add_reserve(m, number(m, 2), [3, 5]), number(m, 0), x])


def add_missing_item(m: Build, x: Tensor) -> list[Tensor]:
    (items,) = add_list_operator(m, "SetItem", [add_reserve(m, number(m, 2), [3, 5]), x])
    return [add_stack(m, items, [3, 3, 5]), x]


def of_text(m: Build, x: Tensor) -> list[Tensor]:
    items = add_reserve(m, number(m, 2), [3, 5])
    how = [items, m.constant([3, 5])]
    return [*add_list_operator(m, "Stack", how, [m.tensor([2, 3, 5], dtype="string")]), x]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (several_ranks, "must have one known dtype and rank"),
        (several_sizes, "must have one shape"),
        (add_unset_list, "the items of its list must have a known shape"),
        (unknown_operator, "FlexTensorListResize .* must not read or write a list of tensors"),
        (add_unread_list, "must be a tensor, got a list of tensors"),
        (add_missing_item, "input 2 is missing"),
        (of_text, "must be numbers or bools, got string"),
    ],
)
def test_refuses_lists_that_cannot_become_tensors(
    make: Callable[[Build, Tensor], list[Tensor]], message: str
) -> None:
    m = Build()
    m.output(*make(m, m.input(ITEM)))
    with pytest.raises(UnsupportedOperators, match=message):
        convert(m.bytes())
