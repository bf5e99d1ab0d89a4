"""Run the commands and the code of a document, and look for the output that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def list_blocks(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block; other languages are not run."""
    return _BLOCK.findall(text)


def split_commands(block: str) -> list[tuple[str, int]]:
    """Return the commands of a block with the exit status that their comments state."""
    lines = block.replace("\\\n", " ").splitlines()
    parts = [line.partition("  # exit status ") for line in lines]
    return [(command, int(status or 0)) for command, _, status in parts]


def make_environment(folder: Path) -> dict[str, str]:
    """Return an environment with python and tflite2onnx of this test run; pip installs nothing."""
    programs = {"python": '"$@"', "tflite2onnx": '-m tflite2onnx "$@"', "pip": "--version"}
    folder.mkdir()
    for name, words in programs.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}\n')
        path.chmod(0o755)
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "COLUMNS": "200",
    }


def run_document(text: str, folder: Path, environment: dict[str, str]) -> None:
    """Run each block in a folder; a block of output shows lines of the block before it.

    A command has the exit status that its comment states, else 0. A shown line that ends in "..."
    is the start of a printed line. Spaces are not compared, because the widths of columns depend on
    other rows.
    """
    printed: list[str] = []
    for kind, block in list_blocks(text):
        if kind == "text":
            for line in map(_normalize, block.splitlines()):
                start = line.removesuffix("...").rstrip()
                exact = start == line
                found = any(x == line if exact else x.startswith(start) for x in printed)
                assert found, f"not printed: {line}\n" + "\n".join(printed)
            continue
        printed = []
        commands = split_commands(block) if kind == "sh" else [(block, 0)]
        for command, status in commands:
            words = ["bash", "-c", command] if kind == "sh" else [sys.executable, "-c", command]
            done = subprocess.run(
                words, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
            printed += [_normalize(line) for line in (done.stdout + done.stderr).splitlines()]


def _normalize(line: str) -> str:
    return " ".join(line.split())
