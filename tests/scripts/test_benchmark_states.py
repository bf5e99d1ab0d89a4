"""scripts/benchmark_states.py: the pairs of int8 states, and the outputs of their other forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.fusions import count_optimized_nodes
from tests.support.small import chain
from tests.support.streams import SHAPE, assign, handle, initialise, read_variable
from tflite2onnx import convert

PAIRS = 4  # of the input, of the state, of the output and of the next state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a model that sums and multiplies its input and an int8 state."""
    fields: dict[str, Any] = {"dtype": "int8", "scale": 0.5, "zero_point": 3}
    m = Build()
    x = m.input(SHAPE, **fields)
    zeros = {"values": np.full(SHAPE, 3, np.int8), "scale": 0.5, "zero_point": 3}
    initialise(m, memory=zeros)
    variable = handle(m)
    state = read_variable(m, variable, **fields)
    total, product = (
        m.op(code, [state, x], [m.tensor(SHAPE, **fields)])[0] for code in ("ADD", "MUL")
    )
    assign(m, variable, total)
    m.output(product)
    file = tmp_path / "state.tflite"
    file.write_bytes(m.bytes())
    return file


def test_forms_replace_all_pairs(script: Any, path: Path) -> None:
    """ONNX Runtime runs the nodes of a form instead of each pair, but no Identity."""
    model = convert(path, opset=script.OPSET, states="required").model
    kernels = {"QLinearAdd": 1, "QLinearMul": 1}
    for form, steps in script.FORMS.items():
        wanted = kernels | {kind: PAIRS for kind, *_ in steps if kind != "Identity"}
        assert count_optimized_nodes(script.replace_pairs(model, form)) == wanted, form


def test_all_forms_but_cast_give_equal_outputs(
    script: Any, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """All forms but Cast alone give the outputs of the pairs."""
    monkeypatch.setattr(script, "TURNS", 1)
    monkeypatch.setattr(script, "ROUNDS", 1)
    script.main([str(path)])
    first, _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert first.endswith(f", {PAIRS} to {PAIRS} pairs in a model")
    words = [row.strip("| ").split(" | ") for row in rows]
    assert [name for name, _, outputs in words if outputs != "equal"] == [
        "one Cast in place of each pair"
    ]
    assert {*script.FORMS} < {name for name, _, _ in words}


def test_model_without_pairs_is_refused(script: Any, tmp_path: Path) -> None:
    file = tmp_path / "floats.tflite"
    file.write_bytes(chain("ABS"))
    with pytest.raises(SystemExit, match=r"floats\.tflite must have int8 inputs or states"):
        script.main([str(file)])
