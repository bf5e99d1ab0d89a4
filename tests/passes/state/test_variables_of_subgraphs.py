"""Variables in sub-graphs that operators run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from tests.support import Build, Subgraph, Tensor, check
from tests.support.control import (
    add_less,
    apply_operator,
    build_growing_list,
    count_rounds,
    graph,
)
from tests.support.reading import float32
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable, states
from tflite2onnx import convert
from tflite2onnx.errors import UnsupportedOperators

ZEROS = np.zeros(SHAPE, np.float32)


def test_each_call_continues_from_the_last_state() -> None:
    """Each call continues from the state after the last call."""
    m = Build()
    inner = m.subgraph("inner")
    a = inner.input(SHAPE)
    (b,) = inner.op("ADD", [read_variable(inner, handle(inner)), a], [SHAPE])
    assign(inner, handle(inner), b)
    inner.output(b)
    initialise(m, memory=ZEROS)
    x = m.input(SHAPE, name="x")
    for _ in range(2):
        (x,) = m.op(
            "STABLEHLO_COMPOSITE",
            [x],
            [SHAPE],
            name="some.thing",
            decomposition_subgraph_index=inner.index,
            composite_attributes=bytes(flexbuffers.Dumps({})),
        )
    m.output(x)
    assert states(check(m.bytes(), runs=3)) == [("memory", "memory/next")]


def condition(m: Subgraph, x: Tensor, limit: float) -> Tensor:
    """Return whether a number is below a limit."""
    return m.op("LESS", [x, m.constant(float32(limit))], [[]], dtype="bool")[0]


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_each_iteration_continues_from_the_last_state(rounds: int) -> None:
    """Each iteration and each run continues from the last state."""
    m = Build()
    initialise(m, memory=ZEROS, constant=np.full(SHAPE, 0.5, np.float32))
    cond, body = m.subgraph("cond"), m.subgraph("body")
    cond.output(condition(cond, cond.input([]), rounds))
    count = body.input([])
    (more,) = body.op(
        "ADD",
        [read_variable(body, handle(body)), read_variable(body, handle(body, "constant"))],
        [SHAPE],
    )
    assign(body, handle(body), more)
    body.output(*body.op("ADD", [count, body.constant(float32(1.0))], [[]]))
    x = m.input(SHAPE, name="x")
    (before,) = m.op("ADD", [read_variable(m, handle(m)), x], [SHAPE])
    assign(m, handle(m), before)
    m.op(
        "WHILE",
        [m.constant(float32(0.0))],
        [[]],
        cond_subgraph_index=cond.index,
        body_subgraph_index=body.index,
    )
    m.output(read_variable(m, handle(m)))
    assert states(check(m.bytes(), runs=3)) == [("memory", "memory/next")]


def test_branches_assign_and_read_variables() -> None:
    """Each branch assigns one variable and reads both."""
    m = Build()
    initialise(m, memory=ZEROS, other=ZEROS)
    graphs = []
    for name, other in (("memory", "other"), ("other", "memory")):
        inner = m.subgraph(name)
        x = inner.input(SHAPE)
        (y,) = inner.op("ADD", [read_variable(inner, handle(inner, name)), x], [SHAPE])
        assign(inner, handle(inner, name), y)
        inner.output(*inner.op("SUB", [y, read_variable(inner, handle(inner, other))], [SHAPE]))
        graphs.append(inner.index)
    x, number = m.input(SHAPE, name="x"), m.input([], name="number")
    m.output(
        *m.op(
            "IF",
            [condition(m, number, 0), x],
            [SHAPE],
            then_subgraph_index=graphs[0],
            else_subgraph_index=graphs[1],
        )
    )
    result = check(m.bytes(), runs=8)
    assert [state for state, _ in states(result)] == ["memory", "other"]


@pytest.mark.parametrize("code", ["WHILE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE"])
def test_outputs_that_are_variables_are_overwritten(code: str) -> None:
    """The operator overwrites the variable; the values in its sub-graphs are no states."""
    m = Build()
    count, x = m.input([], dtype="int32"), m.input(SHAPE, dtype="int32")
    inner = graph(m, "inner", [count, x], count_rounds(apply_operator("NEG")))
    operands: list[Tensor] = [count, x]
    options: dict[str, Any] = {"name": "some", "composite_attributes": bytes(flexbuffers.Dumps({}))}
    options["decomposition_subgraph_index"] = inner.index
    if code == "IF":
        operands.insert(0, add_less(m, [count]))
        options = dict.fromkeys(("then_subgraph_index", "else_subgraph_index"), inner.index)
    elif code == "STABLEHLO_CASE":
        operands.insert(0, count)
        options = {"branch_subgraph_indices": [inner.index] * 2}
    elif code == "WHILE":
        cond = graph(m, "cond", operands, lambda m, xs: [add_less(m, xs)])
        options = {"cond_subgraph_index": cond.index, "body_subgraph_index": inner.index}
    made = [m.tensor(t.shape, dtype="int32", variable=True) for t in (count, x)]
    m.output(*m.op(code, operands, made, **options))
    for number in (0, 5):
        check(m.bytes(), runs=2, ranges={"int32": (number, number)})


def add_counting(m: Subgraph) -> list[Tensor]:
    """Return x added to a variable tensor, and a count plus 1."""
    x, count = m.input(SHAPE), m.input([])
    state = m.tensor(SHAPE, name="state", variable=True)
    (y,) = m.op("ADD", [state, x], [SHAPE])
    m.op("ABS", [y], [state])
    return [y, *m.op("ADD", [count, m.constant(float32(1.0))], [[]])]


def test_variable_tensors_of_a_loop_last_as_long_as_it() -> None:
    """A variable tensor in a loop starts at 0 in each run, because WHILE releases its memory."""
    m = Build()
    cond, body = m.subgraph("cond"), m.subgraph("body")
    cond.input(SHAPE)
    cond.output(condition(cond, cond.input([]), 3))
    body.output(*add_counting(body))
    y, _ = m.op(
        "WHILE",
        [m.input(SHAPE), m.constant(float32(0.0))],
        [SHAPE, []],
        cond_subgraph_index=cond.index,
        body_subgraph_index=body.index,
    )
    m.output(y)
    assert states(check(m.bytes(), runs=3, ranges={"float32": (-1, 1)})) == []


def test_variable_tensors_of_a_graph_that_is_called_begin_anew() -> None:
    m = Build()
    inner = m.subgraph("inner")
    inner.output(*add_counting(inner))
    ends = [m.input(SHAPE, name="x"), m.constant(float32(0.0))]
    for _ in range(2):
        ends = m.op(
            "STABLEHLO_COMPOSITE",
            ends,
            [SHAPE, []],
            name="some.thing",
            decomposition_subgraph_index=inner.index,
            composite_attributes=bytes(flexbuffers.Dumps({})),
        )
    m.output(*ends)
    assert states(check(m.bytes(), runs=3)) == []


def test_variable_that_is_computed_before_it_is_read_is_no_state() -> None:
    """The list grows in each round: the variable has its size, not the declared one."""
    m = build_growing_list(2, variable=True)
    assert states(check(m.bytes(), runs=2, ranges={"int32": (0, 0)})) == []


def test_refuses_initial_values_read_before_assignment() -> None:
    """CALL_ONCE must not read a variable before its assignment."""
    m = Build()
    inner = m.subgraph("init")
    value = read_variable(inner, handle(inner), name="value")
    assign(inner, handle(inner), value)
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)
    m.output(read_variable(m, handle(m)))
    with pytest.raises(
        UnsupportedOperators,
        match=r"value.: it must read only variables to which an earlier operator assigns",
    ):
        convert(m.bytes())


def test_refuses_assignments_without_value() -> None:
    m = Build()
    m.output(*m.op("ABS", [m.input(SHAPE)], [SHAPE]))
    m.op("ASSIGN_VARIABLE", [handle(m), None], [])
    with pytest.raises(UnsupportedOperators, match="input 1 is missing"):
        convert(m.bytes())


def test_variable_tensors_that_are_inputs_are_no_state() -> None:
    """A variable tensor that is an input is an input, not a state."""
    m = Build()
    x = m.input(SHAPE, name="x", variable=True)
    m.output(*m.op("NEG", [x], [SHAPE]))
    assert states(convert(m.bytes())) == []
