"""scripts/time_folder.py: one command for several models is faster than a command for each."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.golden.records import ASSETS
from tests.support.project import ROOT

MODELS = [str(ASSETS / f"keywords_{kind}.tflite") for kind in ("float32", "int8", "uint8")]


def run_script(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a process."""
    command = [sys.executable, str(ROOT / "scripts" / "time_folder.py"), *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_one_command_for_several_models_is_faster() -> None:
    done = run_script("--runs", "1", *MODELS)
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"3 models: one command (\S+) s, a command for each (\S+) s, ratio (\S+)\n", done.stdout
    )
    assert found
    together, apart, ratio = map(float, found.groups())
    assert 0 < together < apart
    assert abs(ratio - together / apart) < 0.05


def test_wrong_arguments_are_refused() -> None:
    for words, message in (
        (["--runs", "0", MODELS[0]], "--runs must be at least 1, got 0"),
        (["none.tflite"], "no such file: none.tflite"),
    ):
        done = run_script(*words)
        assert (done.returncode, message in done.stderr) == (2, True)
