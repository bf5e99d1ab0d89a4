"""Random nests of loops, branches and calls, with dynamic sizes and with variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support import Build, Subgraph, check
from tests.support.control import number, op
from tests.support.streams import assign, handle, initialise, read_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Tensor

    # Adds the operators of a sub-graph at a depth; returns their outputs.
    Change = Callable[[Subgraph, list[Tensor], int], list[Tensor]]

ROWS, DYNAMIC = [2, 3], [None, 3]
_DEEPEST, _MOST = 3, 12  # the depth of the nest, and the number of its sub-graphs


class Nest:
    """A model with random sub-graphs; all their inputs and outputs have one declared shape."""

    def __init__(self, seed: int, shape: Sequence[int | None]) -> None:
        self.m, self.shape, self.left = Build(), shape, _MOST
        self.generator = np.random.default_rng(seed)

    def tensor(self, m: Subgraph) -> Tensor:
        return m.tensor(self.shape)

    def apply(self, m: Subgraph, code: str, *xs: Tensor) -> Tensor:
        return m.op(code, xs, [self.tensor(m)])[0]

    def constant(self, m: Subgraph, rows: int) -> Tensor:
        return m.constant(np.full((rows, 3), 0.5, np.float32))

    def choose(self, *names: str) -> str:
        return str(self.generator.choice(names))

    def graph(self, xs: Sequence[Tensor], change: Change, depth: int) -> Subgraph:
        """Return a sub-graph that applies a change to its inputs."""
        inner = self.m.subgraph("inner")
        given = [inner.input(self.shape) for _ in xs]
        made = change(inner, given, depth + 1)
        inner.output(*(self.apply(inner, "SIN", y) for y in made))
        return inner

    def branch(self, m: Subgraph, xs: list[Tensor], change: Change, depth: int) -> list[Tensor]:
        (total,) = m.op("SUM", [xs[0], m.constant([0, 1])], [[]])
        limit = m.constant(np.array(self.generator.normal(), np.float32))
        (small,) = m.op("LESS", [total, limit], [[]], dtype="bool")
        then, other = (self.graph(xs, change, depth).index for _ in range(2))
        return m.op(
            "IF",
            [small, *xs],
            [self.tensor(m) for _ in xs],
            then_subgraph_index=then,
            else_subgraph_index=other,
        )

    def loop(self, m: Subgraph, xs: list[Tensor], change: Change, depth: int) -> list[Tensor]:
        cond, body = self.m.subgraph("cond"), self.m.subgraph("body")
        (count, *_), (now, *given) = (
            [g.input([], dtype="int32"), *(g.input(self.shape) for _ in xs)] for g in (cond, body)
        )
        rounds = int(self.generator.integers(0, 4))
        cond.output(*cond.op("LESS", [count, number(cond, rounds)], [[]], dtype="bool"))
        made = change(body, given, depth + 1)
        following = op(body, "ADD", now, number(body, 1))
        body.output(following, *(self.apply(body, "SIN", y) for y in made))
        outputs = [m.tensor([], dtype="int32"), *(self.tensor(m) for _ in xs)]
        return m.op(
            "WHILE",
            [number(m, 0), *xs],
            outputs,
            cond_subgraph_index=cond.index,
            body_subgraph_index=body.index,
        )[1:]

    def call(self, m: Subgraph, xs: list[Tensor], change: Change, depth: int) -> list[Tensor]:
        return m.op(
            "STABLEHLO_COMPOSITE",
            xs,
            [self.tensor(m) for _ in xs],
            name="some.thing",
            decomposition_subgraph_index=self.graph(xs, change, depth).index,
            composite_attributes=bytes(flexbuffers.Dumps({})),
        )

    def take_room(self, code: str, depth: int) -> bool:
        """Return whether an operator with sub-graphs still fits the limits, and count it."""
        known = code in ("branch", "loop", "call")
        self.left -= known
        return known and depth < _DEEPEST and self.left >= 0

    def resize_rows(self, m: Subgraph, xs: list[Tensor], depth: int) -> list[Tensor]:
        """Return a tensor with another number of rows."""
        (x,) = xs
        for _ in range(self.generator.integers(1, 3)):
            code = self.choose("more", "twice", "first", "branch", "loop")
            if self.take_room(code, depth):
                (x,) = getattr(self, code)(m, [x], self.resize_rows, depth)
            elif code == "first":
                ends = [m.constant(each) for each in ([0, 0], [1, 3])]
                (x,) = m.op("SLICE", [x, *ends], [self.tensor(m)])
            else:
                more = self.constant(m, 2) if code == "more" else self.apply(m, "NEG", x)
                (x,) = m.op("CONCATENATION", [x, more], [self.tensor(m)], axis=0)
        return [x]

    def mix_with_variables(self, m: Subgraph, xs: list[Tensor], depth: int) -> list[Tensor]:
        """Return tensors combined with values of variables, and assign some variables."""
        for _ in range(self.generator.integers(1, 4)):
            code = self.choose("ADD", "MAXIMUM", "read", "assign", "branch", "loop", "call")
            i, j, k = (int(n) for n in self.generator.integers(0, (len(xs), len(xs), 3)))
            variable = f"memory {k}"
            if self.take_room(code, depth):
                xs = getattr(self, code)(m, xs, self.mix_with_variables, depth)
            elif code == "assign":
                assign(m, handle(m, variable), self.apply(m, "COS", xs[i]))
            else:
                other = read_variable(m, handle(m, variable), ROWS) if code == "read" else xs[j]
                mixed = self.apply(m, "MAXIMUM" if code == "MAXIMUM" else "ADD", xs[i], other)
                xs = [*xs[:i], self.apply(m, "TANH", mixed), *xs[i + 1 :]]
        return xs


@pytest.mark.parametrize("seed", range(16))
def test_random_nests_with_changing_sizes_equal_litert(seed: int) -> None:
    """The number of rows differs between iterations and between branches."""
    nest = Nest(seed, DYNAMIC)
    (y,) = nest.resize_rows(nest.m, [nest.m.input(ROWS if seed % 2 else DYNAMIC, name="x")], 0)
    away = nest.apply(nest.m, "ABS", y)
    nest.m.output(away, *nest.m.op("SUM", [away, nest.m.constant([0])], [[3]]))
    result = check(nest.m.bytes(), seeds=range(3), ranges={"float32": (-1, 1)}, random_layouts=[0])
    assert result.inputs


@pytest.mark.parametrize("seed", range(16))
def test_random_nests_with_variables_equal_litert(seed: int) -> None:
    """Variables are read and assigned at any depth, over several runs."""
    nest = Nest(seed, ROWS)
    xs = [nest.m.input(ROWS, name=f"x{i}") for i in range(1 + seed % 3)]
    zeros = np.zeros(ROWS, np.float32)
    initialise(nest.m, **{"memory 0": zeros + 0.1, "memory 1": zeros - 0.2})
    initialise(nest.m, **{"memory 2": zeros})
    made = nest.mix_with_variables(nest.m, xs, 0)
    nest.m.output(*(nest.apply(nest.m, "ABS", y) for y in made))
    check(nest.m.bytes(), seeds=[0], runs=4, ranges={"float32": (-1, 1)}, random_layouts=[0])
