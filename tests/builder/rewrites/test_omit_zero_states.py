"""builder/rewrites.py: computed zeros are no initial states."""

from __future__ import annotations

import numpy as np
import pytest

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import omit_zero_states


def make_nodes(op_type: str, *numbers: float, peepholes: bool = False) -> list[Node]:
    """Return a recurrent node with an initial state for each number."""
    states, nodes = [], []
    for number in numbers:
        wide, state = Value(), Value()
        one = Value(np.array(number, np.float32))
        nodes.append(Node("Expand", (one, Value()), (wide,), {}))
        nodes.append(Node("Unsqueeze", (wide, Value(np.array([0]))), (state,), {}))
        states.append(state)
    inputs = (Value(), Value(), Value(), Value(), None, *states)
    last = (Value(),) if peepholes else ()
    return [*nodes, Node(op_type, (*inputs, *last), (Value(),), {})]


@pytest.mark.parametrize(("op_type", "states"), [("GRU", 1), ("LSTM", 2), ("RNN", 1)])
def test_initial_states_of_zeros_are_omitted(op_type: str, states: int) -> None:
    nodes = make_nodes(op_type, *[0] * states)
    assert omit_zero_states(Builder(17), nodes, ())[-1].inputs == nodes[-1].inputs[:5]


def test_peepholes_keep_their_place() -> None:
    nodes = make_nodes("LSTM", 0, 0, peepholes=True)
    inputs = nodes[-1].inputs
    assert omit_zero_states(Builder(17), nodes, ())[-1].inputs == (
        *inputs[:5],
        None,
        None,
        inputs[-1],
    )


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0)])
def test_initial_states_with_a_number_other_than_0_stay(numbers: tuple[float, float]) -> None:
    nodes = make_nodes("LSTM", *numbers)
    assert omit_zero_states(Builder(17), nodes, ()) == tuple(nodes)


def test_constant_initial_states_stay() -> None:
    states = (Value(np.zeros((1, 2, 3), np.float32)),)
    nodes = [Node("GRU", (Value(), Value(), Value(), None, None, *states), (Value(),), {})]
    assert omit_zero_states(Builder(17), nodes, ()) == tuple(nodes)
    assert omit_zero_states(Builder(17), [], ()) == ()
