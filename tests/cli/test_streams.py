"""The program works if stdout and stderr are closed, full, or no files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.small import network
from tflite2onnx import convert
from tflite2onnx.cli import entry, main

Captured = pytest.CaptureFixture[str]


def run_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: Sequence[str]
) -> tuple[int, set[str]]:
    """Return the exit status of a command with closed streams, and the files that it wrote.

    The folder has a model `m`, and its ONNX model.
    """
    monkeypatch.chdir(folder)
    Path("m").write_bytes(network())
    convert("m", "n.onnx")
    monkeypatch.setattr(sys, "argv", ["tflite2onnx", *words])
    with monkeypatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, None)
        status = entry()
        for stream in (sys.stdout, sys.stderr):
            stream.close()
    return status, {path.name for path in Path().iterdir()} - {"m", "n.onnx"}


@pytest.mark.parametrize(
    ("words", "written"),
    [
        (["m"], {"m.onnx"}),
        (["inspect", "-q", "m"], set()),
        (["verify", "-q", "m"], set()),
        (["check", "-q", "n.onnx", "--target", "openvino"], set()),
    ],
)
def test_what_prints_no_result_works_with_closed_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], written: set[str]
) -> None:
    assert run_closed(tmp_path, monkeypatch, words) == (0, written)


@pytest.mark.parametrize(
    "words",
    [
        ["-", "out.onnx"],
        ["inspect", "-"],
        ["verify", "-"],
        ["verify", "m", "-"],
        ["check", "-", "--target", "openvino"],
    ],
)
def test_closed_stdin_is_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], capfd: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").write_bytes(network())
    monkeypatch.setattr(sys, "argv", ["tflite2onnx", *words])
    monkeypatch.setattr(sys, "stdin", None)
    assert entry() == 1
    sys.stdin.close()
    assert "cannot read the model: stdin is closed; give its file" in capfd.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["m"]


def test_check_reads_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    convert(network(), tmp_path / "n.onnx")
    with (tmp_path / "n.onnx").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main(["check", "-", "--target", "openvino"]) == 0
    assert "PASSED: - breaks no rule of openvino" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["m", "-"],
        ["m", "-", "-q"],
        ["m", "--json"],
        ["m", "-", "--json"],
        ["m", "m", "-o", "out", "--json"],
        ["inspect", "m"],
        ["inspect", "m", "-q", "--json"],
        ["verify", "m"],
        ["verify", "m", "-q", "--json"],
        ["check", "n.onnx", "--target", "openvino"],
        ["check", "n.onnx", "--target", "openvino", "-q", "--json"],
        ["ops"],
        ["ops", "-q"],
        ["completion", "fish"],
    ],
    ids=" ".join,
)
def test_what_prints_its_result_fails_with_a_closed_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    assert run_closed(tmp_path, monkeypatch, words) == (1, set())


def test_no_model_is_said_to_be_written_to_a_closed_stdout(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(network())
    for redirection, reason in (
        (">&-", b"stdout is closed"),
        (">/dev/full", b"cannot write the model to stdout: No space left on device"),
    ):
        for option in ("", "--json"):
            command = f"{sys.executable} -m tflite2onnx m - {option} {redirection}"
            done = subprocess.run(
                ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, check=False
            )
            assert (done.returncode, done.stdout) == (1, b"")
            assert reason in done.stderr
            assert b"wrote" not in done.stderr


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [(">&-", "stdout is closed"), (">/dev/full", "No space left on device")],
)
@pytest.mark.parametrize(
    "words", ["--version", "verify --version", "--help", "verify --help", "ops"]
)
def test_what_is_not_printed_is_said_in_one_line(words: str, redirection: str, reason: str) -> None:
    """The version is printed before other modules are imported; the help is above the buffer."""
    told = f"tflite2onnx: cannot print: {reason}\n"
    assert run_redirected(words, redirection) == (1, told)
    assert run_redirected(words, "| true")[1] == ""  # the reader of a pipe ends


def run_redirected(words: str, redirection: str) -> tuple[int, str]:
    """Return the exit status of a command, and what it prints on stderr; stdout has a buffer."""
    command = f"{sys.executable} -m tflite2onnx {words} {redirection}"
    environment = {key: v for key, v in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["inspect", "no.tflite"], "no.tflite"),
        (["verify", "no.tflite"], "no.tflite"),
        (["verify", "m", "no.onnx"], "m"),
        (["check", "no.onnx", "--target", "openvino"], "no.onnx"),
    ],
)
def test_an_error_is_json_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
    words: list[str],
    about: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").write_bytes(network())
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    error = json.loads(out)
    assert error["model"] == about
    assert "No such file" in error["error"]
    assert "No such file" in err


@pytest.mark.parametrize(
    "words",
    [
        ["no.tflite"],
        ["no.tflite", "--jobs", "0"],
        ["no.tflite", "x.onnx", "--image", "x.png"],
        ["no.tflite", "-o", "x.tflite"],
        ["no.tflite", "-"],
        ["-", "-", "-o", "x"],
    ],
)
def test_errors_of_conversions_have_the_form_of_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, words: list[str]
) -> None:
    """If a model is to be written to stdout, the JSON output is on stderr."""
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--json"]) == 1
    out, err = capsys.readouterr()
    text = err[err.index("{") :] if words[1:] == ["-"] else out
    error = json.loads(text)
    assert (error["converted"], error["failed"]) == (0, max(1, len(error["models"])))
    assert error["models"][0]["model"] == words[0]
    assert error["models"][0]["error"] in err


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
    assert capsys.readouterr().err == "tflite2onnx: cannot print: No space left on device\n"


def test_stdout_without_an_encoding_accepts_all_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text stream without an encoding, such as StringIO, accepts all text."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stdout", text)
    assert main(["ops"]) == 0
    assert text.getvalue().startswith("operator")
