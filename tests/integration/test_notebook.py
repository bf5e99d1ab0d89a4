"""The notebook for Colab runs, cell by cell; only its installation is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import ROOT


def test_notebook_converts_verifies_and_runs_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells convert a model, verify it, and run it."""
    shutil.copy(ROOT / "assets/models/mobilenet_float32.tflite", tmp_path)
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples/convert.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    install, *rest = code
    assert install.startswith("%pip install ")
    names: dict[str, Any] = {}
    for cell in rest:
        exec(cell, names)  # noqa: S102 - the project's own notebook
    assert names["report"].ok
    assert names["report"].tensors
    assert names["scores"].shape == names["result"].outputs[0].onnx_shape
    assert Path("model.onnx").is_file()
