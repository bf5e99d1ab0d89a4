"""utils/child_process.py: LiteRT runs in a child process, and the parent reports its crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.small import chain

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["verify"], None),
        (["--verify"], None),
        (["verify", "--json"], ["error", "model"]),
        (["--verify", "--json"], ["converted", "failed", "models"]),
    ],
    ids=str,
)
def test_a_crash_of_litert_is_an_error(
    tmp_path: Path, words: list[str], parts: list[str] | None
) -> None:
    """A crash of LiteRT, which no handler could catch, becomes an error, of a model's form."""
    litert = tmp_path / "ai_edge_litert" / "interpreter.py"
    litert.parent.mkdir()
    (litert.parent / "__init__.py").touch()
    litert.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    ran = subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *words, "model.tflite"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 1
    assert (sorted(json.loads(ran.stdout)) if ran.stdout else None) == parts
    crashed = b"LiteRT or ONNX Runtime crashed"
    assert ran.stderr.startswith(b"tflite2onnx: model.tflite: ")
    assert crashed in ran.stderr
    assert (crashed in ran.stdout) == (parts is not None)
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("words", [["verify"], ["verify", "model.tflite"]], ids=str)
def test_the_exit_status_is_that_of_the_process_that_verifies(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "model.tflite").write_bytes(chain("ABS"))
    ran = subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 2 - len(words)
    assert bool(ran.stdout) == (ran.returncode == 0)


# A signal that arrives just before a system call is handled after the call. Therefore the parent
# gets time to start waiting, and the child sleeps in short intervals. The child prints when it
# begins, and when it is interrupted. Signal handlers are reset, because the tests may run where
# signals are ignored, as under nohup.
WAITING = """
import signal, sys, time
from tflite2onnx.utils import child_process
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, {interrupts})
def main():
    try:
        time.sleep(0.5)
        print("begun", flush=True)
        for _ in range(600):
            time.sleep(0.1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        time.sleep(0.2)
        return 130
sys.exit(child_process.run_in_child(main))
"""


def start_waiting(*, ignoring: bool = False) -> subprocess.Popen[str]:
    """Start a program with a waiting child in a new process group."""
    interrupts = "signal.SIG_IGN" if ignoring else "signal.default_int_handler"
    code = WAITING.format(interrupts=interrupts)
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_signal_ends_parent_and_child_process(number: signal.Signals) -> None:
    """A signal ends parent and child: the output ends only after both have ended."""
    process = start_waiting()
    process.send_signal(number)
    assert process.communicate(timeout=20)[0] == ""
    assert process.returncode == -number


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_interrupt_is_reported_once(send: Callable[[int, int], None]) -> None:
    """One interrupt is reported if it is sent to the parent, or to both as by a terminal."""
    process = start_waiting()
    send(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[0] == "interrupted\n"
    assert process.returncode == 130


def test_ignored_interrupt_stays_ignored() -> None:
    """Ignored interrupts stay ignored, as for background jobs of a shell."""
    process = start_waiting(ignoring=True)
    os.killpg(process.pid, signal.SIGINT)
    process.terminate()
    assert process.communicate(timeout=20)[0] == ""
