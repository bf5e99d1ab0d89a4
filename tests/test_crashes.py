"""What runs LiteRT on the command line: a process that may crash, and another that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.small import chain

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("words", [["verify"], ["--verify"]], ids=str)
def test_a_crash_of_litert_is_an_error(tmp_path: Path, words: list[str]) -> None:
    """It cannot be caught in the process that it ends."""
    litert = tmp_path / "ai_edge_litert" / "interpreter.py"
    litert.parent.mkdir()
    (litert.parent / "__init__.py").touch()
    litert.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *words, "model.tflite"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, b"")
    want = b"tflite2onnx: cannot verify: LiteRT or ONNX Runtime crashed (SIGSEGV)\n"
    assert ran.stderr.endswith(want)
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("words", [["verify"], ["verify", "model.tflite"]], ids=str)
def test_the_exit_status_is_that_of_the_process_that_verifies(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    ran = subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *words],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2 - len(words)
    assert bool(ran.stdout) == (ran.returncode == 0)
