"""Loops in which the number of rows of a variable grows and decides on further iterations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, Subgraph, Tensor, check
from tests.support.control import add_if, apply_operator, number, op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Subgraph, Tensor], Tensor]

ROWS = [None, 3]


def rows_of(m: Subgraph, x: Tensor) -> Tensor:
    """Return the number of rows of a matrix."""
    (shape,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
    cut = [m.constant([0]), m.constant([1]), m.constant([1])]
    return m.op("STRIDED_SLICE", [shape, *cut], [[]], shrink_axis_mask=1)[0]


def loop_while_rows(
    m: Build,
    code: str,
    most: int,
    xs: Sequence[Tensor],
    changes: Sequence[Change],
    at: Subgraph | None = None,
) -> list[Tensor]:
    """Return the outputs of a WHILE that compares the total number of rows with a limit."""
    cond, body = m.subgraph("cond"), m.subgraph("body")
    given = [cond.input(ROWS) for _ in xs]
    total = rows_of(cond, given[0])
    for each in given[1:]:
        total = op(cond, "ADD", total, rows_of(cond, each))
    cond.output(*cond.op(code, [total, number(cond, most)], [[]], dtype="bool"))
    given = [body.input(ROWS) for _ in xs]
    body.output(*(change(body, x) for change, x in zip(changes, given, strict=True)))
    place = at or m
    return place.op(
        "WHILE",
        xs,
        [place.tensor(ROWS) for _ in xs],
        cond_subgraph_index=cond.index,
        body_subgraph_index=body.index,
    )


def add_operator(m: Subgraph, code: str, *inputs: Tensor, **options: Any) -> Tensor:
    """Return the output of an operator whose number of rows is data-dependent."""
    return m.op(code, inputs, [m.tensor(ROWS)], **options)[0]


def join_rows(count: int = 1) -> Change:
    """Return a change that appends rows to a matrix."""
    more = np.arange(3 * count, dtype=np.float32).reshape(-1, 3)
    return lambda m, x: add_operator(m, "CONCATENATION", x, m.constant(more), axis=0)


def without_first(m: Subgraph, x: Tensor) -> Tensor:
    cut = m.constant([1, 0]), m.constant([0, 0]), m.constant([1, 1])
    return add_operator(m, "STRIDED_SLICE", x, *cut, begin_mask=2, end_mask=3)


CHANGES: dict[str, Change] = {
    "CONCATENATION": join_rows(),
    "GATHER": lambda m, x: add_operator(m, "GATHER", x, m.constant([0] * 500), axis=0),
    "PAD": lambda m, x: add_operator(m, "PAD", x, m.constant([[1, 1], [0, 0]])),
    "TILE": lambda m, x: add_operator(m, "TILE", x, m.constant([2, 1])),
}


@pytest.mark.parametrize("most", [0, 6, 400])
@pytest.mark.parametrize("code", CHANGES)
def test_loop_runs_while_a_growing_matrix_is_small(code: str, most: int) -> None:
    m = Build()
    m.output(*loop_while_rows(m, "LESS", most, [m.input([1, 3])], [CHANGES[code]]))
    check(m.bytes())


@pytest.mark.parametrize("start", [2, 7])
def test_loop_runs_while_a_shrinking_matrix_is_large(start: int) -> None:
    m = Build()
    m.output(*loop_while_rows(m, "GREATER", 3, [m.input([start, 3])], [without_first]))
    check(m.bytes())


def test_condition_may_compare_the_shape_of_a_vector() -> None:
    m = Build()
    cond, body = m.subgraph("cond"), m.subgraph("body")
    (shape,) = cond.op("SHAPE", [cond.input([None])], [[1]], dtype="int32", out_type="int32")
    cond.output(*cond.op("LESS", [shape, cond.constant([300])], [[1]], dtype="bool"))
    inputs = body.input([None]), body.constant([2.5, 1.0])
    body.output(*body.op("CONCATENATION", inputs, [body.tensor([None])], axis=0))
    m.output(
        *m.op(
            "WHILE",
            [m.input([1])],
            [m.tensor([None])],
            cond_subgraph_index=cond.index,
            body_subgraph_index=body.index,
        )
    )
    check(m.bytes())


def test_two_variables_may_grow_by_different_numbers_of_rows() -> None:
    m = Build()
    xs = m.input([1, 3]), m.input([2, 3])
    m.output(*loop_while_rows(m, "LESS", 300, xs, [join_rows(), join_rows(3)]))
    check(m.bytes())


def test_loop_body_may_compute_with_a_growing_size() -> None:
    def change(m: Subgraph, x: Tensor) -> Tensor:
        least = op(m, "MINIMUM", rows_of(m, x), number(m, 5))
        (real,) = m.op("CAST", [least], [[]], dtype="float32")
        return join_rows()(m, add_operator(m, "ADD", x, real))

    m = Build()
    m.output(*loop_while_rows(m, "LESS", 9, [m.input([1, 3])], [change]))
    check(m.bytes())


def test_nested_growing_loops_equal_litert() -> None:
    """The inner loop appends rows up to a multiple of four."""

    def change(outer: Subgraph, x: Tensor) -> Tensor:
        cond, body = m.subgraph("cond"), m.subgraph("body")
        rest = op(cond, "FLOOR_MOD", rows_of(cond, cond.input(ROWS)), number(cond, 4))
        cond.output(*cond.op("NOT_EQUAL", [rest, number(cond, 0)], [[]], dtype="bool"))
        body.output(join_rows()(body, body.input(ROWS)))
        (made,) = outer.op(
            "WHILE",
            [join_rows()(outer, x)],
            [outer.tensor(ROWS)],
            cond_subgraph_index=cond.index,
            body_subgraph_index=body.index,
        )
        return add_operator(outer, "NEG", made)

    m = Build()
    m.output(*loop_while_rows(m, "LESS", 10, [m.input([1, 3])], [change]))
    check(m.bytes())


@pytest.mark.parametrize("value", [0, 1, 3])
def test_if_may_depend_on_a_data_dependent_size(value: float) -> None:
    """An IF depends on a data-dependent size: the number of elements above a limit."""
    m = Build()
    x = m.input([5, 3])
    (larger,) = m.op("GREATER", [x, m.constant(np.float32(2))], [[5, 3]], dtype="bool")
    (found,) = m.op("WHERE", [larger], [m.tensor([None, 2], dtype="int64")])
    count = rows_of(m, found)
    (few,) = m.op("LESS", [count, number(m, 2)], [[]], dtype="bool")
    outputs = add_if(m, few, [x], apply_operator("TANH"), apply_operator("NEG"))
    m.output(*outputs, op(m, "MINIMUM", count, number(m, 1)))
    check(m.bytes(), inputs=[np.full((5, 3), value, np.float32)])
