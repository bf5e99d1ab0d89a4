"""What LiteRT prints while a model is verified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tflite2onnx.utils.console import filter_stderr
from tflite2onnx.verification.runtimes import FASTEST_KERNELS, open_interpreter

MODEL = Path(__file__).parents[2] / "assets/models/keywords_float32.tflite"


def test_notice_of_the_delegate_is_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    open_interpreter(MODEL, FASTEST_KERNELS)
    assert capfd.readouterr().err == ""


def test_errors_of_litert_are_printed_at_the_end(capfd: pytest.CaptureFixture[str]) -> None:
    with filter_stderr(lambda line: not line.startswith(b"INFO")):
        os.write(2, b"INFO: a delegate\nERROR: broken\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "ERROR: broken\n"


def test_interpreter_opens_with_closed_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptor 2 may be closed; the interpreter opens nevertheless."""

    def fail(_: int) -> int:
        raise OSError("bad file descriptor")

    monkeypatch.setattr(os, "dup", fail)
    assert open_interpreter(MODEL, FASTEST_KERNELS)
