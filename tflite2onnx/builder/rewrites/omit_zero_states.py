"""Computed initial states of recurrent nodes that are zeros, the default of ONNX's nodes.

A layer whose batch is dynamic reads the size of the batch from its sequence, and makes zeros of
this size. These are eight nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tflite2onnx.builder.builder import find_makers
from tflite2onnx.builder.nodes import Node, Value

_STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}  # the number of initial states
_FIRST = 5  # the index of the first initial state among the inputs
_KEEPS = ("Reshape", "Squeeze", "Unsqueeze", "Identity")


def omit_zero_states(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes without initial states that are 0 for each batch.

    Nodes that nothing reads any more are kept.
    """
    if not any(node.op_type in _STATES for node in nodes):
        return tuple(nodes)
    makers = find_makers(nodes)
    return tuple(_omit_states(node, makers) for node in nodes)


def _omit_states(node: Node, makers: Mapping[Value | None, Node]) -> Node:
    end = _FIRST + _STATES.get(node.op_type, 0)
    states, rest = node.inputs[_FIRST:end], node.inputs[end:]
    if node.op_type not in _STATES or not all(_is_zero(state, makers) for state in states):
        return node
    omitted = [None] * len(states) if rest else []
    return node._replace(inputs=(*node.inputs[:_FIRST], *omitted, *rest))


def _is_zero(value: Value | None, makers: Mapping[Value | None, Node]) -> bool:
    """Return whether a value is zeros of a computed shape."""
    node = makers.get(value) if value else None
    while node and node.op_type in _KEEPS:
        node = makers.get(node.present[0])
    if not node or node.op_type != "Expand":
        return False
    data = node.present[0].data
    return data is not None and not data.any()
