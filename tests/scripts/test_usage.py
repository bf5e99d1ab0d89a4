"""Every script says what it does, also where packages that it needs are missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.conftest import SCRIPTS

_RUN = [path for path in sorted(SCRIPTS.glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.nightly(cases=2)
@pytest.mark.parametrize("path", _RUN, ids=lambda path: path.stem)
def test_every_script_explains_itself(path: Path) -> None:
    """Each script prints its description for --help, and ends."""
    command = [sys.executable, str(path), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert len(done.stdout) > 60


@pytest.mark.parametrize("word", ["--help", "-h", "model.tflite"])
def test_missing_package_is_named(
    script: Any, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With --help the description is printed; otherwise one line says what to install."""
    path = tmp_path / "measure.py"
    path.write_text('"""Measure it."""\nimport argparse\nimport PIL.Image\nimport no_such_one\n')
    monkeypatch.setattr(script, "find_spec", lambda name: name == "argparse" or None)
    monkeypatch.setattr(sys, "argv", [str(path), word])
    with pytest.raises(SystemExit) as ended:
        script.explain(path)
    if word == "model.tflite":
        said = "measure.py needs other packages: pip install no-such-one pillow"
        assert ended.value.code == said
    else:
        assert (ended.value.code, capsys.readouterr().out) == (0, "Measure it.\n")
