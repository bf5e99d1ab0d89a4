"""Output on a terminal of 80 columns: tables and lines are broken at spaces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.records import ASSETS
from tests.support.small import chain
from tflite2onnx.cli import main
from tflite2onnx.utils.console import TextTable

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
WIDTH = 80


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty directory."""
    monkeypatch.chdir(tmp_path)


def run_on_terminal(*words: str) -> list[str]:
    """Return the lines that a command prints on a terminal of 80 columns."""
    ours, theirs = os.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "COLUMNS": str(WIDTH),
    }
    command = [sys.executable, "-m", "tflite2onnx", *words]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.STDOUT, env=environment):
        os.close(theirs)
        printed = b"".join(iter(lambda: _read_bytes(ours), b""))
    os.close(ours)
    return [line.rpartition("\r")[2] for line in printed.decode().replace("\r\n", "\n").split("\n")]


def _read_bytes(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # Linux reports the end as an error
        return b""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["inspect", "keywords_int8"], "serving_default_input:0  1     no: RESHAPE (operator 0,"),
        (["keywords_int8"], "        ONNX [1, 49, 10] NWC  scale 0.0323370025, zero point -2"),
        (["keywords_int8", "--layout", f"{'n' * 50}=NCW"], f"    {'n' * 50}; tflite2onnx inspect"),
    ],
)
def test_lines_fit_the_width_of_the_terminal(words: Sequence[str], line: str) -> None:
    """No line is wider than the terminal, and no word is broken."""
    Path("keywords_int8").write_bytes((ASSETS / "keywords_int8.tflite").read_bytes())
    lines = run_on_terminal(*words)
    assert line in lines
    assert all(len(each) <= WIDTH or " " not in each.strip() for each in lines), lines


def test_paths_wider_than_the_terminal_are_not_broken() -> None:
    """A path that is wider than the terminal has a line of its own, which is not broken."""
    folder = Path("models", "of_" + "a_long_name_" * 6)
    folder.mkdir(parents=True)
    for name in ("first.tflite", "second.tflite"):
        (folder / name).write_bytes(chain("ABS"))
    lines = run_on_terminal("models", "-o", "out")
    assert str(folder / "first.tflite") in lines
    (written,) = (line for line in lines if line.endswith("first.onnx"))
    assert written.startswith("    out")


def test_tables_on_a_pipe_have_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """Tables on a pipe have at most 120 columns; with --wide each row is one line."""
    words = ["inspect", str(ASSETS / "keywords_int8.tflite"), "--storage"]
    main(words)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= 120
    assert any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    main([*words, "--wide"])
    wide = capsys.readouterr().out.splitlines()
    assert len(wide) < len(lines)
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in wide)
    (row,) = (line for line in wide if ":0  0  " in line)
    assert row.endswith("got [1, 1, 49, 10]")


def test_long_names_in_sentences_are_shortened() -> None:
    """A name in a sentence has half of a line, so that no line is longer than the limit."""
    rows = [("input", f"no: CONV_2D ({'a' * 100}): must have 3 channels"), ("x", "yes")]
    lines = list(TextTable(rows).align(80))
    assert max(map(len, lines)) <= 80
    assert any(word.startswith("(aaa") and word.endswith("aaa):") for word in lines[0].split())


@pytest.mark.parametrize("limit", [40, 60, 80, 200])
def test_names_are_shortened_only_as_far_as_the_limit_requires(limit: int) -> None:
    """A table is as wide as the limit allows: names lose their middle, numbers nothing."""
    rows = [("a" * 60 + "b" * 60, "1"), ("c" * 30, "2")]
    lines = list(TextTable(rows).align(limit))
    assert [line.split()[1] for line in lines] == ["1", "2"]
    assert len(lines[0]) == min(limit, 123)
    assert lines[0].startswith("aaa")
    assert lines[0].split()[0].endswith("bbb")


def test_a_name_of_a_damaged_file_may_have_a_million_characters() -> None:
    """Widths above the limit are not tried: each of a million widths would copy the name."""
    lines = list(TextTable([("a" * 1_000_000, "1"), ("b", "2")]).align(80))
    assert max(map(len, lines)) == 80
