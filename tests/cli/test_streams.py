"""The program works if stdout and stderr are closed, full, or no files."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from tests.support.small import network
from tflite2onnx.cli import entry, main

Captured = pytest.CaptureFixture[str]


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


def test_closed_pipe_prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """If the reader of a pipe stops, as in `tflite2onnx ops | head -1`, nothing is printed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert main(["ops"]) == 1
    assert capsys.readouterr().err == ""


def test_failing_stdout_is_reported_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """An error while writing to stdout is reported on stderr."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["ops"]) == 1
    assert capsys.readouterr().err == "tflite2onnx: ops: cannot print: No space left on device\n"


def test_stdout_without_an_encoding_accepts_all_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text stream without an encoding, such as StringIO, accepts all text."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    assert main(["ops"]) == 0
    assert text.getvalue().startswith("operator")
