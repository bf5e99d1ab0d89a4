"""Loops that are recurrent layers, and loops that are nearly so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.control import loop, number, op
from tests.toolkit import Build, check
from tflite2onnx.formulas import Applied, Atom, Formulas, Sum, matches
from tflite2onnx.op import rules_for
from tflite2onnx.reader import read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.toolkit import Subgraph, Tensor
    from tflite2onnx.convert import Result

TIMES, BATCH, FEATURES, UNITS = 7, 3, 5, 11


@dataclass(frozen=True)
class Keras:
    """How a recurrent layer of Keras is written down; `cell` is LSTM, GRU, RNN or GRU-before.

    With what stands behind `times` it is no such layer any more, unless that is as it is here.
    """

    cell: str = "LSTM"
    matmul: bool = False  # BATCH_MATMUL in place of FULLY_CONNECTED
    apart: bool = False  # biases that are added by themselves
    last: bool = False  # a list with place for the last item alone
    batch: int = BATCH
    times: int = TIMES

    first: int = 0
    step: int = 1
    more: int = 0  # items of the sequence than there are rounds
    squash: str = "TANH"
    one: float = 1
    extra: bool = False  # a variable that is something else
    activation: str = "NONE"
    int8: bool = False
    axis: int = 0
    other: bool = False  # the update gate is that of the new value
    stale: bool = False  # the state that is handed on is the one before

    def model(self) -> Build:
        """Return (states, sequence) -> (counts, items, states)."""
        m = Build()
        states = [m.input([self.batch, UNITS], name=f"state {i}") for i in range(self.states)]
        shape = [self.times + self.more, self.batch, FEATURES]
        sequence = m.input(shape if not self.axis else [self.batch, self.times, FEATURES], name="x")
        length = 1 if self.last else self.times
        items = m.constant(np.zeros((length, self.batch, UNITS), np.float32))
        counts = [number(m, self.first), number(m, 0)]
        made = loop(m, [*counts, items, *states, sequence], self.body, self.goes_on)
        m.output(*made[:-1])
        return m

    @property
    def states(self) -> int:
        """How many states there are."""
        return (2 if self.cell == "LSTM" else 1) + self.extra

    def goes_on(self, m: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        """Return the condition: Keras counts twice."""
        most = number(m, self.times)
        both = [m.op("LESS", [x, most], [[]], dtype="bool")[0] for x in xs[:2]]
        return m.op("LOGICAL_AND", both, [[]])[0]

    def body(self, m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the next values."""
        counts, items, (h, *others), sequence = xs[:2], xs[2], xs[3:-1], xs[-1]
        shape = [self.batch, FEATURES]
        (x,) = m.op("GATHER", [sequence, counts[0]], [shape], axis=self.axis)
        made, *rest = Cell(self, m).step(x, h, others)
        steps = [number(m, self.step), number(m, 1)]
        following = [op(m, "ADD", *pair) for pair in zip(counts, steps, strict=True)]
        (item,) = m.op("RESHAPE", [made, m.constant([1, *made.shape])], [[1, *made.shape]])
        if not self.last:
            (first,) = m.op("RESHAPE", [counts[0], m.constant([1])], [[1]])
            (place,) = m.op("CONCATENATION", [first, m.constant([0, 0])], [[3]], axis=0)
            (item,) = m.op("DYNAMIC_UPDATE_SLICE", [items, item, place], [items.shape])
        return [*following, item, op(m, "ABS", h) if self.stale else made, *rest, sequence]


class Cell:
    """The operators of a cell, its parameters at random."""

    def __init__(self, form: Keras, m: Subgraph) -> None:
        self.form, self.m = form, m
        self.generator = np.random.default_rng(0)

    def step(self, x: Tensor, h: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
        """Return the next states."""
        if self.form.cell == "LSTM":
            made = self.lstm(x, h, others[0])
        elif self.form.cell == "RNN":
            made = [self.apply(self.form.squash, self.add(self.sums(x, 1), self.sums(h, 1)))]
        else:
            made = [self.gru(x, h)]
        return [*made, *(self.add(made[0], t) for t in others[-1:] if self.form.extra)]

    def lstm(self, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        """Return h and c."""
        sums = self.add(self.sums(x, 4), self.sums(h, 4, bias=False))
        if self.form.apart:
            sums = self.op("ADD", sums, self.constant(4 * UNITS))
        i, f, g, o = self.split(sums, 4)
        i, f, o = (self.apply("LOGISTIC", gate) for gate in (i, f, o))
        kept, new = self.op("MUL", f, c), self.op("MUL", i, self.apply(self.form.squash, g))
        c = self.add(kept, new)
        return [self.op("MUL", o, self.apply("TANH", c)), c]

    def gru(self, x: Tensor, h: Tensor) -> Tensor:
        """Return h."""
        before = self.form.cell == "GRU-before"
        xz, xr, xg = self.split(self.sums(x, 3), 3)
        hz, hr, *hg = self.split(self.sums(h, 2 if before else 3), 2 if before else 3)
        z, r = (self.apply("LOGISTIC", self.add(*pair)) for pair in ((xz, hz), (xr, hr)))
        inner = self.sums(self.op("MUL", r, h), 1, bias=False) if before else self.op("MUL", r, *hg)
        g = self.apply(self.form.squash, self.add(xg, inner))
        one = self.m.constant(np.array(self.form.one, np.float32))
        (rest,) = self.m.op("SUB", [one, z], [z.shape])
        old, new = (rest, z) if self.form.other else (z, rest)
        return self.add(self.op("MUL", old, h), self.op("MUL", new, g))

    def op(self, code: str, *inputs: Tensor, **options: Any) -> Tensor:
        return op(self.m, code, *inputs, **options)

    def apply(self, code: str, x: Tensor) -> Tensor:
        return self.op(code, x)

    def add(self, *terms: Tensor) -> Tensor:
        return self.op("ADD", *terms, fused_activation_function=self.form.activation)

    def constant(self, *shape: int) -> Tensor:
        return self.m.constant(self.generator.uniform(-0.5, 0.5, shape).astype(np.float32))

    def sums(self, x: Tensor, gates: int, *, bias: bool = True) -> Tensor:
        """Return products of x for gates."""
        columns, shape = gates * UNITS, [x.shape[0], gates * UNITS]
        if self.form.matmul:
            weights = self.constant(x.shape[1], columns)
            (made,) = self.m.op("BATCH_MATMUL", [x, weights], [shape])
            return self.op("ADD", made, self.constant(columns)) if bias else made
        weights = self.constant(columns, x.shape[1])
        if self.form.int8:
            integers = self.generator.integers(-127, 127, (columns, x.shape[1]), np.int8)
            weights = self.m.constant(integers, scale=0.005)
        return self.m.op(
            "FULLY_CONNECTED", [x, weights, self.constant(columns) if bias else None], [shape]
        )[0]

    def split(self, x: Tensor, count: int) -> list[Tensor]:
        """Return gates, by SPLIT or, where there are two of them, by STRIDED_SLICE."""
        shapes = [[x.shape[0], UNITS]] * count
        if count != 2:
            return self.m.op("SPLIT", [number(self.m, -1), x], shapes, num_splits=count)
        return [
            self.m.op(
                "STRIDED_SLICE",
                [x, *(self.m.constant(n) for n in ([0, i * UNITS], [0, (i + 1) * UNITS], [1, 1]))],
                [shape], begin_mask=1, end_mask=1,
            )[0]
            for i, shape in enumerate(shapes)
        ]  # fmt: skip


def kinds(form: Keras) -> set[str]:
    """Return the types of the nodes, once their numbers are proved."""
    result: Result = check(form.model().bytes(), ranges={"float32": (-1, 1)}, random_layouts=[0])  # type: ignore[assignment]
    return {node.op_type for node in result.model.graph.node} - {"Reshape", "Squeeze", "Identity"}


@pytest.mark.parametrize(
    "form",
    [
        Keras(), Keras(matmul=True), Keras(apart=True), Keras(last=True), Keras(batch=1),
        Keras(times=1), Keras(batch=1, matmul=True, last=True), Keras(times=1, last=True),
        Keras("GRU"), Keras("GRU", matmul=True), Keras("GRU", last=True), Keras("GRU", batch=1),
        Keras("GRU-before"), Keras("GRU-before", last=True), Keras("RNN"), Keras("RNN", times=1),
    ],
    ids=str,
)  # fmt: skip
def test_a_recurrent_layer_is_one_node(form: Keras) -> None:
    assert kinds(form) == {form.cell.partition("-")[0]}


@pytest.mark.parametrize(
    "form",
    [
        Keras(more=1), Keras(first=1), Keras(step=2), Keras(squash="RELU"), Keras(extra=True),
        Keras(activation="RELU"), Keras(axis=1, batch=TIMES), Keras(stale=True),
        Keras("GRU", one=2), Keras("GRU", other=True), Keras("GRU", squash="LOGISTIC"),
        Keras("GRU", extra=True), Keras("GRU-before", one=0.5), Keras("GRU-before", other=True),
        Keras("RNN", squash="LOGISTIC"), Keras("RNN", more=2), Keras("RNN", activation="RELU6"),
        Keras("RNN", stale=True),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_nearly_one_stays_a_loop(form: Keras) -> None:
    assert "Loop" in kinds(form)


def test_weights_of_integers_stay_as_the_kernel_multiplies_them() -> None:
    model = Keras(int8=True).model().bytes()
    assert "Loop" in {node.op_type for node in check(model, tolerance=0.02).model.graph.node}


# Formulas


def formulas(m: Build) -> tuple[Formulas, list[Any]]:
    """Return the formulas of a graph, and those of its outputs."""
    graph = read(m.bytes()).graphs[0]
    found = Formulas(graph.ops, rules_for)
    return found, [found.of(t) for t in graph.outputs]


def test_sums_are_cut_by_columns_alone() -> None:
    m = Build()
    x = m.input([2, 3])
    matrix = np.arange(18, dtype=np.float32).reshape(6, 3)
    (y,) = m.op("FULLY_CONNECTED", [x, m.constant(matrix), None], [[2, 6]])
    (reshaped,) = m.op("RESHAPE", [y, m.constant([2, 3, 2])], [[2, 3, 2]])
    m.output(
        *m.op("SLICE", [y, m.constant([0, 2]), m.constant([2, 3])], [[2, 3]]),
        *m.op("SLICE", [reshaped, m.constant([0, 1, 0]), m.constant([2, 1, 2])], [[2, 1, 2]]),
        *m.op("SLICE", [y, m.constant([1, 0]), m.constant([1, 6])], [[1, 6]]),
        reshaped,
    )
    _, (columns, middle, row, same) = formulas(m)
    for made, rows in ((columns, [2, 3, 4]), (middle, [2, 3]), (same, range(6))):
        assert isinstance(made, Sum)
        assert [m.tolist() for m in made.products.values()] == [matrix[list(rows)].tolist()]
    assert isinstance(row, Atom)


def test_a_constant_for_each_row_is_no_bias() -> None:
    m = Build()
    weights = m.constant(np.eye(3, dtype=np.float32))
    (y,) = m.op("FULLY_CONNECTED", [m.input([3, 3]), weights, None], [[3, 3]])
    bias = np.arange(3, dtype=np.float32)
    forms = bias, bias[None], bias[:, None]
    m.output(*(m.op("ADD", [y, m.constant(form)], [[3, 3]])[0] for form in forms))
    _, made = formulas(m)
    assert [isinstance(each, Sum) for each in made] == [True, True, False]


def test_names_of_a_pattern_stand_for_one_thing() -> None:
    a, b = (Atom(read(Keras().model().bytes()).graphs[0].inputs[i]) for i in range(2))
    both = Applied("MUL", (a, b))
    assert len(list(matches(("MUL", "p", "q"), both, {}))) == 2
    assert list(matches(("MUL", "p", "q"), both, {"q": a})) == [{"p": b, "q": a}]
    assert not list(matches(("MUL", "p", "p"), both, {}))
    assert not list(matches(("ADD", "p", "q"), both, {}))
    assert not list(matches(("MUL", "p", "q", "r"), both, {}))
