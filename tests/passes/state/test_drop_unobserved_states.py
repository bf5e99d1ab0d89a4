"""passes/state/drop_unobserved_states.py: states that no output depends on are dropped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable, states
from tflite2onnx import convert
from tflite2onnx.cli import main

if TYPE_CHECKING:
    from tests.support import Tensor

COUNT = 2


def add_seed(m: Build, name: str, step: Tensor | None = None) -> Tensor:
    """Compute the next seed, as a dropout layer of Keras 3 does; return the seed of this run."""
    variable = handle(m, name)
    seed = read_variable(m, variable, [COUNT])
    step = m.constant([0.0, 1.0]) if step is None else step
    assign(m, variable, m.op("ADD", [seed, step], [[COUNT]])[0])
    return seed


def build_seeds(*names: str) -> tuple[Build, Tensor]:
    """Return a model "x" -> ABS -> "y" with seeds, and its output."""
    m = Build()
    x = m.input(SHAPE, name="x")
    initialise(m, **{name: np.zeros(COUNT, np.float32) for name in names})
    (y,) = m.op("ABS", [x], [m.tensor(SHAPE, name="y")])
    return m, y


def test_seeds_of_dropout_are_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model has only its own inputs, outputs and nodes."""
    m, y = build_seeds("first", "second")
    for name in ("first", "second"):
        add_seed(m, name)
    m.output(y)
    result: Any = check(m.bytes(), runs=2)
    assert [node.op_type for node in result.model.graph.node] == ["Abs"]
    assert not result.states
    path = tmp_path / "model.tflite"
    path.write_bytes(m.bytes())
    assert main([str(path)]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[:3]] == [
        ["input", "x"],
        ["output", "y"],
        ["1", "node,"],
    ]


def test_unobserved_states_of_each_other_are_dropped() -> None:
    """Two states that depend on each other are dropped, a state that an output needs is not."""
    m, y = build_seeds("first", "second", "third")
    first = add_seed(m, "first")
    second = add_seed(m, "second", first)
    assign(m, handle(m, "first"), second)
    third = add_seed(m, "third", second)
    m.output(y)
    assert not convert(m.bytes()).states
    m.output(*m.op("NEG", [third], [[COUNT]]))
    result: Any = check(m.bytes(), runs=3)
    assert states(result) == [(name, f"{name}/next") for name in ("first", "second", "third")]


def test_observed_state_between_dropped_ones_stays() -> None:
    """The states around it are dropped, and its initial value stays its own."""
    m, y = build_seeds("first")
    initialise(m, second=np.array([3, 4], np.float32), third=np.zeros(COUNT, np.float32))
    seeds = [add_seed(m, name) for name in ("first", "second", "third")]
    m.output(y)
    m.output(*m.op("NEG", [seeds[1]], [[COUNT]]))
    result: Any = check(m.bytes(), runs=3)
    assert states(result) == [("second", "second/next")]
    np.testing.assert_array_equal(result.states[0].initial, [3, 4])
