"""Project files state the version, the dependencies and the Python versions of pyproject.toml."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.project import PROJECT
from tflite2onnx.version import VERSION

ROOT = Path(__file__).parents[2]
_OLDEST = PROJECT["requires-python"].removeprefix(">=")


def read_text(name: str) -> str:
    return (ROOT / name).read_text()


def test_versions_are_equal() -> None:
    """The citation and the conda recipe have the version of the package."""
    assert f"\nversion: {VERSION}\n" in read_text("CITATION.cff")
    assert f'set version = "{VERSION}"' in read_text("conda/meta.yaml")
    assert read_text("CHANGELOG.md").splitlines()[2].startswith(f"## {VERSION} ")


def test_conda_recipe_has_the_dependencies_of_the_package() -> None:
    """Conda's name of flatbuffers for Python is python-flatbuffers."""
    run = read_text("conda/meta.yaml").partition("  run:\n")[2].partition("test:")[0]
    found = {line.strip().removeprefix("- ").replace(" ", "") for line in run.splitlines()}
    wanted = {word.replace("flatbuffers", "python-flatbuffers") for word in PROJECT["dependencies"]}
    assert found == wanted | {f"python>={_OLDEST}"}


def test_workflow_runs_the_python_versions_that_the_package_names() -> None:
    named = {
        word.rpartition(" ")[2] for word in PROJECT["classifiers"] if re.search(r":: 3\.", word)
    }
    assert named == set(re.findall(r'"(3\.\d+)"', read_text(".github/workflows/tests.yml")))
    assert _OLDEST in named


@pytest.mark.parametrize("name", ["refused", "wrong"])
def test_issue_forms_ask_for_commands_that_exist(name: str) -> None:
    """A form asks for the output of `inspect`, and each command that it names has a help text."""
    text = read_text(f".github/ISSUE_TEMPLATE/{name}.yml")
    commands = re.findall(r"`tflite2onnx (\w+)[^`]*`", text)
    assert "inspect" in commands
    for command in commands:
        words = [sys.executable, "-m", "tflite2onnx", command, "--help"]
        assert subprocess.run(words, capture_output=True, check=False, cwd=ROOT).returncode == 0


@pytest.mark.nightly
def test_commands_of_the_dockerfile_run(tmp_path: Path) -> None:
    """The lines of the Dockerfile install the package and run its command, without Docker.

    The image's Python is another one, and its folder /source is the copy of the project here.
    """
    lines = dict(re.findall(r"^([A-Z]+) (.*)$", read_text("Dockerfile"), re.MULTILINE))
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns(".*", "tests", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignored)
    venv.create(tmp_path / "venv", symlinks=True, with_pip=True)
    environment = {"PATH": f"{tmp_path}/venv/bin:/usr/bin:/bin"}
    model = ROOT / "assets" / "models" / "keywords_int8.tflite"
    (entry,) = re.findall(r'"(.*)"', lines["ENTRYPOINT"])
    for command in (
        lines["RUN"].replace("/source", str(source)),
        f"{entry} {model} out.onnx --verify",
    ):
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "PASSED" in done.stdout
    assert not source.exists()
