"""Models with state, and their operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build, Subgraph, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

SHAPE = (2, 3, 5)


def handle(m: Subgraph, name: str = "memory", container: str = "") -> Tensor:
    """Return a handle of a variable."""
    made = m.tensor([], dtype="resource")
    return m.op("VAR_HANDLE", [], [made], shared_name=name, container=container)[0]


def initialise(m: Build, **values: Any) -> None:
    """Set variables to constants before the first run."""
    inner = m.subgraph("init")
    for name, value in values.items():
        fields = value if isinstance(value, dict) else {"values": value}
        assign(inner, handle(inner, name), inner.constant(**fields))
    m.op("CALL_ONCE", [], [], init_subgraph_index=inner.index)


def read_variable(
    m: Subgraph, variable: Tensor, shape: Sequence[int] | None = SHAPE, **fields: Any
) -> Tensor:
    """Return the value of a variable."""
    return m.op("READ_VARIABLE", [variable], [m.tensor(shape, **fields)])[0]


def assign(m: Subgraph, variable: Tensor, value: Tensor) -> None:
    """Set a variable."""
    m.op("ASSIGN_VARIABLE", [variable, value], [])


def build_sum(name: str = "memory") -> bytes:
    """Return a model that accumulates its inputs, starting from 0, 1, 2, ...: "x" -> "y"."""
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, **{name: np.arange(30, dtype=np.float32).reshape(SHAPE)})
    memory = handle(m, name)
    (y,) = m.op("ADD", [read_variable(m, memory), x], [m.tensor(SHAPE, name="y")])
    assign(m, memory, y)
    m.output(y)
    return m.bytes()


def states(result: Any) -> list[tuple[str, str]]:
    """Return the names of the inputs and outputs of the states."""
    return [(state.input.name, state.output.name) for state in result.states]
