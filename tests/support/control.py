"""Models with control flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build, Subgraph, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Change = Callable[[Subgraph, Sequence[Tensor]], Sequence[Tensor]]

ROUNDS = 3


def like(m: Subgraph, t: Tensor) -> Tensor:
    return m.tensor(t.shape, dtype=t.dtype, quantization=t.quantization)


def number(m: Subgraph, value: int) -> Tensor:
    return m.constant(np.array(value, np.int32))


def op(m: Subgraph, code: str, *inputs: Tensor, **options: Any) -> Tensor:
    """Return the output of an operator whose output is like its first input."""
    return m.op(code, inputs, [like(m, inputs[0])], **options)[0]


def add_less(m: Subgraph, xs: Sequence[Tensor], most: int = ROUNDS) -> Tensor:
    """Return whether the first tensor is less than `most`."""
    return m.op("LESS", [xs[0], number(m, most)], [xs[0].shape], dtype="bool")[0]


def graph(m: Build, name: str, inputs: Sequence[Tensor], change: Change) -> Subgraph:
    """Return a sub-graph with inputs like `inputs`; its outputs are the results of `change`."""
    inner = m.subgraph(name)
    given = [
        inner.input(t.shape, dtype=t.dtype, quantization=t.quantization, name=f"given_{i}")
        for i, t in enumerate(inputs)
    ]
    inner.output(*change(inner, given))
    return inner


def loop(
    m: Build,
    variables: Sequence[Tensor],
    change: Change,
    condition: Callable[[Subgraph, Sequence[Tensor]], Tensor] = add_less,
    at: Subgraph | None = None,
) -> list[Tensor]:
    """Return the outputs of a WHILE; `change` computes the next values of the variables."""
    cond = graph(m, "cond", variables, lambda inner, xs: [condition(inner, xs)])
    body = graph(m, "body", variables, change)
    place = at or m
    outputs = [like(place, t) for t in variables]
    return place.op(
        "WHILE",
        variables,
        outputs,
        cond_subgraph_index=cond.index,
        body_subgraph_index=body.index,
    )


def count_rounds(change: Change) -> Change:
    """Return a change that counts the rounds in the first variable."""
    return lambda m, xs: [op(m, "ADD", xs[0], number(m, 1)), *change(m, xs[1:])]


def add_if(
    m: Build,
    condition: Tensor,
    inputs: Sequence[Tensor],
    then: Change,
    other: Change,
    at: Subgraph | None = None,
) -> list[Tensor]:
    """Return the outputs of an IF, which are like its inputs or the first of its inputs."""
    place = at or m
    graphs = [graph(m, name, inputs, change) for name, change in (("then", then), ("else", other))]
    count = len(m.model().subgraphs[graphs[0].index].outputs)
    return place.op(
        "IF",
        [condition, *inputs],
        [like(place, t) for t in inputs[:count]],
        then_subgraph_index=graphs[0].index,
        else_subgraph_index=graphs[1].index,
    )


def apply_operator(code: str) -> Change:
    """Return a change that applies an operator to the first variable."""
    return lambda m, xs: [op(m, code, xs[0])]


def counter(m: Build) -> Tensor:
    return m.input([], dtype="int32", name="count")


def build_growing_list(start: int, *, variable: bool = False) -> Build:
    """Return a loop that negates its list and appends a row to it in each round.

    `variable` marks the negated list as a variable tensor.
    """
    m = Build()
    count, rows, row = counter(m), m.input([start, 3], name="rows"), m.input([1, 3], name="row")

    def open_tensor(m: Subgraph, t: Tensor) -> Tensor:
        return m.tensor([None, 3] if t is rows else t.shape, dtype=t.dtype)

    variables = [count, rows, row]
    cond, body = m.subgraph("cond"), m.subgraph("body")
    for inner in (cond, body):
        given = [
            inner.input([None, 3] if t is rows else t.shape, dtype=t.dtype, name=f"given_{i}")
            for i, t in enumerate(variables)
        ]
        if inner is cond:
            inner.output(add_less(inner, given))
            continue
        more, negated = inner.tensor([None, 3]), inner.tensor([1, 3], variable=variable)
        inner.op("NEG", [given[1]], [negated])
        inner.op("CONCATENATION", [negated, given[2]], [more], axis=0)
        inner.output(op(inner, "ADD", given[0], number(inner, 1)), more, given[2])
    made = m.op(
        "WHILE",
        variables,
        [open_tensor(m, t) for t in variables],
        cond_subgraph_index=cond.index,
        body_subgraph_index=body.index,
    )
    (total,) = m.op("SUM", [made[1], m.constant([0])], [[3]])
    (shifted,) = m.op("ADD", [made[1], row], [m.tensor([None, 3])])
    m.output(made[1], total, shifted)
    return m
