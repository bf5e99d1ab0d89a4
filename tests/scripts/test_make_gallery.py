"""scripts/make_gallery.py: the row of a network, and the page of a folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "assets" / "models" / "keywords_int8.tflite"


def test_page_has_a_row_for_each_network(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network is named by its file and its source; a file that is no model has the reason."""
    folder = tmp_path / "models" / "owner+name"
    folder.mkdir(parents=True)
    shutil.copy(MODEL, folder / "a__b__keywords.tflite")
    (folder / "text.tflite").write_text("no model")
    page = tmp_path / "models.md"
    monkeypatch.setattr(script, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["make_gallery.py", str(tmp_path / "models")])
    script.main()
    lines = page.read_text().splitlines()
    row, refused = (line for line in lines if "owner/name" in line)
    assert row.startswith("| keywords | [owner/name](https://github.com/owner/name) | int8")
    assert "| equal to the default kernels (XNNPACK) |" in row
    assert refused.startswith("| text |")
    assert "ends with" in refused
    assert "2 networks: " in page.read_text()
