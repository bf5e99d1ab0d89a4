"""The commands of the tutorial run as written, and print the output in the tutorial."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SECTION = "## 6. The command line, job by job\n"


def read_session() -> list[tuple[str, list[str]]]:
    """Return each block of commands with the lines that the tutorial shows as output."""
    text = (ROOT / "docs" / "tutorial.md").read_text().partition(_SECTION)[2]
    blocks = _BLOCK.findall(text)
    kinds = [kind for kind, _ in blocks]
    assert kinds == ["sh", "text"] * (len(blocks) // 2)
    return [
        (commands, printed.splitlines())
        for (_, commands), (_, printed) in zip(blocks[::2], blocks[1::2], strict=True)
    ]


def split_commands(block: str) -> list[tuple[str, int]]:
    """Return the commands of a block with the exit status that their comments state."""
    lines = block.replace("\\\n", " ").splitlines()
    parts = [line.partition("  # exit status ") for line in lines]
    return [(command, int(status or 0)) for command, _, status in parts]


def normalize(line: str) -> str:
    """Return a line with single spaces, because the widths of columns depend on other rows."""
    return " ".join(line.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the models and the commands python and tflite2onnx."""
    place = tmp_path_factory.mktemp("session")
    shutil.copytree(ROOT / "assets", place / "assets")
    programs = {"python": '"$@"', "tflite2onnx": '-m tflite2onnx "$@"'}
    (place / "bin").mkdir()
    for name, words in programs.items():
        path = place / "bin" / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        path.chmod(0o755)
    return place


# It takes half a minute. One test, because each block needs the files of the blocks before it.
@pytest.mark.nightly
def test_commands_of_the_tutorial_print_the_shown_output(folder: Path) -> None:
    """Each command has the exit status of the tutorial, and each block prints the shown lines."""
    paths = [str(folder / "bin"), os.environ["PATH"]]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    for block, printed in read_session():
        lines = []
        for command, status in split_commands(block):
            words = ["bash", "-c", command]
            done = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == status, f"{command}\n{done.stderr}"
            lines += [normalize(line) for line in (done.stdout + done.stderr).splitlines()]
        for line in map(normalize, printed):
            start = line.removesuffix("...").rstrip()
            exact = start == line
            assert any(x == line if exact else x.startswith(start) for x in lines), line
    files = {path.name for path in (folder / "out").iterdir()}
    assert {"features.onnx", "split.onnx.data", "piped.onnx", "verified.json"} <= files
    assert {path.name for path in (folder / "models").iterdir()} == {
        path.name for path in (ROOT / "assets" / "models").iterdir()
    }
