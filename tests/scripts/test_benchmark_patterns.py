"""scripts/benchmark_patterns.py: a pass for each row, and fewer nodes with it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fusions import count_optimized_nodes


def test_each_pass_removes_nodes(script: Any) -> None:
    rows = {(row.path, row.opset): (name, row) for name, row in script.ROWS.items()}
    for (path, opset), (name, row) in rows.items():
        if path.startswith("tflite2onnx."):  # a function that chooses a form, not a pass
            continue
        data = row.build()
        models = [
            script.convert_without(path, data, opset),
            script.convert_model(data, opset),
        ]
        before, after = (sum(count_optimized_nodes(model).values()) for model in models)
        assert after < before, name


def test_table_has_nodes_without_and_with_the_pass(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(script, "TURNS", 2)
    script.main(["pack of 2"])
    *_, row = capsys.readouterr().out.splitlines()
    assert row.startswith("| PACK of 2 | ")
    assert row.endswith(" | 5 | 4 |")
