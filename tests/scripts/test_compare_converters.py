"""scripts/compare_converters.py: counts of converted and of equal networks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tflite2onnx

MODELS = Path(__file__).parents[2] / "assets" / "models"


def test_converters_are_counted(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that fails converts nothing, and its message is shown."""
    ours = f"{sys.executable} -m tflite2onnx -q {{tflite}} {{onnx}}"
    words = ["--command", f"ours={ours}", "--command", f"other={ours} --opset 3"]
    model = str(MODELS / "keywords_int8.tflite")
    monkeypatch.setattr(sys, "argv", ["compare_converters.py", model, *words])
    script.main()
    table, messages = capsys.readouterr()
    assert "| ours | 1 | 1 | 1 |\n| other | 1 | 0 | 0 |" in table
    assert "other, keywords_int8.tflite: not converted: exit" in messages
    assert "ours, " not in messages


@pytest.mark.parametrize("layout", ["onnx", "tflite"])
def test_layouts_do_not_count_and_numbers_do(script: Any, tmp_path: Path, layout: Any) -> None:
    """Inputs are permuted to the shape of the ONNX model; a changed weight is found."""
    source, path = MODELS / "mobilenet_float32.tflite", tmp_path / "model.onnx"
    model = tflite2onnx.convert(source, io_layout=layout).model
    for port in (*model.graph.input, *model.graph.output):
        new, old = f"other_{port.name}", port.name
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]
        port.name = new
    onnx.save(model, path)
    assert script.compare_network(source, path) == script.EQUAL
    weights = next(w for w in model.graph.initializer if len(w.dims) == 4)
    changed = numpy_helper.to_array(weights) * np.float32(1.1)
    weights.CopyFrom(numpy_helper.from_array(changed, weights.name))
    onnx.save(model, path)
    assert "its difference must be at most" in script.compare_network(source, path)
    path.write_bytes(b"no model")
    assert script.compare_network(source, path).startswith("ONNX Runtime: ")
