"""What models remember, as inputs and outputs of their graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.streams import summing
from tests.toolkit import Build, Subgraph, Tensor, check
from tflite2onnx.graph import Graph
from tflite2onnx.op import rules_for
from tflite2onnx.reader import read
from tflite2onnx.state import explicit

if TYPE_CHECKING:
    pass


def states(result: Any) -> list[tuple[str, str]]:
    """Return the names of the inputs and outputs that are state."""
    return [(state.input.name, state.output.name) for state in result.states]


def graph_of(data: bytes) -> Graph:
    """Return the primary sub-graph without variables."""
    model = read(data)
    return explicit(model, model.graphs[0], rules_for)


# Resources


def test_a_sum() -> None:
    """The first run begins with the initial value, each other with what the last one left."""
    result: Any = check(summing(), runs=5)
    assert states(result) == [("memory", "memory/next")]
    assert [node.op_type for node in result.model.graph.node] == ["Add", "Identity"]
    np.testing.assert_array_equal(result.states[0].initial.ravel(), np.arange(30))


def test_names_that_are_taken() -> None:
    result = check(summing("x"), runs=2)
    assert states(result) == [("x_1", "x_1/next")]


def test_a_graph_says_what_its_state_is() -> None:
    graph = graph_of(summing())
    assert [t.name for t in graph.inputs] == ["x", "memory"]
    assert [t.name for t in graph.outputs] == ["y", "memory/next"]
    assert (graph.own_inputs, graph.own_outputs) == (graph.inputs[:1], graph.outputs[:1])
    assert len(graph.initial) == 1


# Variable tensors


def svdf(m: Subgraph, x: Tensor, state: Tensor) -> Tensor:
    """Return the output of an operator that updates its state."""
    weights = [m.constant(np.ones(s, np.float32)) for s in ((4, 3), (4, 2))]
    return m.op("SVDF", [x, *weights, None, state], [[2, 4]], rank=1)[0]


def test_operators_that_update_variable_tensors_say_so() -> None:
    """They get the next value as a further output; who reads the tensor later is given that."""
    m = Build()
    x = m.input([2, 3])
    state = m.tensor([2, 8], name="state", variable=True)
    m.output(svdf(m, x, state), svdf(m, x, state), state)
    graph = graph_of(m.bytes())
    first, second, last = graph.ops
    before, after = graph.inputs[1], graph.outputs[-1]
    assert (before.name, after.name) == ("state", "state/next")
    assert (before.is_variable, after.is_variable, before.data) == (False, False, None)
    assert first.inputs[4] is before
    assert [t.shape for t in first.outputs] == [(2, 4), (2, 8)]
    assert second.inputs[4] is first.outputs[1]
    assert (last.code, last.inputs, last.outputs) == ("RESHAPE", second.outputs[1:], (after,))
    assert graph.outputs == (first.outputs[0], second.outputs[0], second.outputs[1], after)
    np.testing.assert_array_equal(graph.initial[0], np.zeros((2, 8), np.float32))


@pytest.mark.parametrize(("dtype", "value"), [("int8", -7), ("int16", 0), ("float32", 0)])
def test_variable_tensors_begin_as_litert_resets_them(dtype: str, value: int) -> None:
    m = Build()
    scale: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.5, "zero_point": -7}
    state = m.tensor([2, 8], name="state", variable=True, dtype=dtype, **scale)
    m.output(svdf(m, m.input([2, 3]), state))
    (initial,) = graph_of(m.bytes()).initial
    assert initial.dtype == dtype
    assert (initial == value).all()


def test_variable_tensors_may_be_written_to_twice() -> None:
    """Nobody can see that the model remembers: it writes before it reads."""
    m = Build()
    x = m.input([2, 3], name="x")
    (y,) = m.op("ABS", [x], [m.tensor([2, 3], name="y", variable=True)])
    m.output(*m.op("NEG", [y], [[2, 3]]))
    m.op("EXP", [x], [y])
    m.output(y)
    assert states(check(m.bytes(), runs=2)) == []


def test_variable_tensors_may_be_outputs_of_any_operator() -> None:
    m = Build()
    x = m.input([2, 3], name="x")
    state = m.tensor([2, 3], name="state", variable=True)
    (y,) = m.op("ADD", [state, x], [[2, 3]])
    m.op("MUL", [y, x], [state])
    m.output(y)
    assert states(check(m.bytes(), runs=4)) == [("state", "state/next")]


def test_variable_tensors_that_nothing_writes_to_are_constant() -> None:
    m = Build()
    state = m.tensor([2, 3], variable=True)
    m.output(*m.op("ADD", [state, m.input([2, 3])], [[2, 3]]))
    assert states(check(m.bytes(), runs=2)) == []
