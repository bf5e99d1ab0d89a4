"""The blocks of README run in order, and print what README shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.support import documents

ROOT = Path(__file__).parents[2]
_CHECKS = "scripts/check"  # the command of developers, which runs this test


def list_blocks() -> list[tuple[str, str]]:
    """Return the language and the text of each block; the last one runs the tests."""
    *blocks, (language, checks) = documents.list_blocks((ROOT / "README.md").read_text())
    assert language == "sh"
    assert _CHECKS in checks
    return blocks


def run_blocks(folder: Path, environment: dict[str, str]) -> str:
    """Run the commands, then the blocks of Python as one program; return their output."""
    blocks = list_blocks()
    commands, code = ("".join(text for kind, text in blocks if kind == k) for k in ("sh", "python"))
    (folder / "code.py").write_text(code)
    (folder / "commands.sh").write_text(f"{commands}python code.py\n")
    done = subprocess.run(
        ["/bin/bash", "-e", "commands.sh"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def expect_shown_output(output: str) -> None:
    """Every line of output that README shows is printed; commands of bundles are no output."""
    shown = [text for kind, text in list_blocks() if kind == "text"]
    lines = [line for text in shown for line in text.splitlines()]
    for line in lines:
        assert line in output or line.startswith("tflite2onnx "), f"not printed: {line}"
    assert sum(line in output for line in lines) >= 6


def test_blocks_run_in_order_in_an_empty_folder(tmp_path: Path) -> None:
    """In the environment of this test run, in which the package and its extras are installed."""
    shutil.copytree(ROOT / "assets", tmp_path / "assets")
    expect_shown_output(run_blocks(tmp_path, documents.make_environment(tmp_path / "programs")))


@pytest.mark.nightly
def test_blocks_run_in_a_new_environment(tmp_path: Path) -> None:
    """As a reader runs them: in a copy of the files of the project, in a virtual environment."""
    checkout = tmp_path / "checkout"
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests")
    shutil.copytree(ROOT, checkout, ignore=ignored)
    venv.create(tmp_path / "venv", symlinks=True, with_pip=True)
    path = f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    own = ("PYTHONPATH", "TFLITE2ONNX_ZOO", "PYTEST_", "COV_", "COVERAGE_")
    kept = {name: each for name, each in os.environ.items() if not name.startswith(own)}
    expect_shown_output(run_blocks(checkout, {**kept, "PATH": path}))
