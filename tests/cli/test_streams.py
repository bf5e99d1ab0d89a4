"""The program works if stdout and stderr are closed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.small import network
from tflite2onnx.cli import entry

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("words", [["ops"], ["inspect", "m"], ["m"]])
def test_program_works_with_closed_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """The command works with closed streams, and prints nothing to them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").write_bytes(network())
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setattr(sys, "argv", ["tflite2onnx", *words])
    assert entry() == 0
    for stream in (sys.stdout, sys.stderr):
        stream.close()
    assert {path.name for path in Path().iterdir()} == {"m", *["m.onnx"] * (words == ["m"])}
