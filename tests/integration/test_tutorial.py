"""The commands of the tutorial run as written, and print the output in the tutorial."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.documents import make_environment, run_document

ROOT = Path(__file__).parents[2]
_SECTION = "## 6. The command line, job by job\n"


# It takes half a minute. One test, because each block needs the files of the blocks before it.
@pytest.mark.nightly
def test_commands_of_the_tutorial_print_the_shown_output(tmp_path: Path) -> None:
    """Each command has the exit status of the tutorial, and each block prints the shown lines."""
    shutil.copytree(ROOT / "assets", tmp_path / "assets")
    section = (ROOT / "docs" / "tutorial.md").read_text().partition(_SECTION)[2]
    run_document(section, tmp_path, make_environment(tmp_path / "bin"))
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"features.onnx", "split.onnx.data", "piped.onnx", "verified.json"} <= files
    assert {path.name for path in (tmp_path / "models").iterdir()} == {
        path.name for path in (ROOT / "assets" / "models").iterdir()
    }
