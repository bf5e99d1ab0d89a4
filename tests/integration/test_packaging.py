"""The distributions: their files, and that they work with the oldest allowed dependencies."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from tests.support.project import PROJECT, ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

# Files of a checkout that do not belong to the project.
_OTHER = shutil.ignore_patterns(
    ".*", "*.egg-info", "__pycache__", "build", "dist", "*.onnx", "models.*"
)
# The tests that run in the fresh environment. They need no file of LiteRT's newest schema, with
# which most tests build their models.
_TESTS = (
    "tests/integration/test_tutorial.py",
    "tests/golden/test_golden.py::test_graph_equals_the_recorded_text",
    "tests/builder/test_opsets.py",
    "tests/op/test_checks.py",
    "tests/test_options.py",
    "tests/test_quantize.py",
)
_TOOLS = ("pytest", "pytest-timeout", "hypothesis", "ml_dtypes")  # the folder of the tests
_LATEST_OF_OLDEST = (3, 12)  # the newest Python for which the oldest numpy has wheels


def run_program(words: Sequence[object], folder: Path) -> str:
    """Run a program outside the environment of this test run; return its output."""
    own = ("PYTHONPATH", "TFLITE2ONNX_ZOO", "PYTEST_", "COV_", "COVERAGE_")
    environment = {name: each for name, each in os.environ.items() if not name.startswith(own)}
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project's files without the results of earlier builds."""
    place = tmp_path_factory.mktemp("packaging") / "checkout"
    shutil.copytree(ROOT, place, ignore=_OTHER)
    return place


@pytest.fixture(scope="module")
def distributions(checkout: Path) -> tuple[Path, Path]:
    """Return the source distribution, and the wheel that is built from it."""
    before = list_files(checkout)
    folder = checkout.parent / "dist"
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout]
    run_program(words, checkout.parent)
    for name in list_files(checkout) - before:
        (checkout / name).unlink()
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return source, wheel


def list_files(folder: Path) -> set[str]:
    """Return the files in a folder and below, by their relative paths."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_source_distribution_has_every_file_of_the_project(
    checkout: Path, distributions: tuple[Path, Path]
) -> None:
    """The source distribution has every file of the project, also the tests and their data."""
    with tarfile.open(distributions[0]) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    assert list_files(checkout) - names == set()
    made = {name for name in names - list_files(checkout) if ".egg-info/" not in name}
    assert made == {"PKG-INFO"}


def test_page_of_a_package_index_is_valid(distributions: tuple[Path, Path]) -> None:
    """The metadata and the README of a distribution give a page without a warning."""
    run_program(
        [sys.executable, "-m", "twine", "check", "--strict", distributions[0]],
        distributions[0].parent,
    )


def test_wheel_has_only_the_package_and_its_metadata(
    checkout: Path, distributions: tuple[Path, Path]
) -> None:
    """The wheel has only the package with its data, and the metadata for a package index."""
    with ZipFile(distributions[1]) as archive:
        names = set(archive.namelist())
        (info,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(info).decode()
    package = {f"tflite2onnx/{name}" for name in list_files(checkout / "tflite2onnx")}
    assert {name for name in names if ".dist-info/" not in name} == package
    for line in (
        "License-Expression: Apache-2.0", "Classifier: Typing :: Typed", "Requires-Python: >=3.11",
        *(f"Classifier: Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)),
        *(f"Project-URL: {name}, {url}" for name, url in PROJECT["urls"].items()),
    ):  # fmt: skip
        assert f"{line}\n" in metadata
    assert f"Keywords: {','.join(PROJECT['keywords'])}\n" in metadata
    assert "Author: " in metadata


def oldest_versions() -> dict[str, str]:
    """Return the oldest version of each dependency that the project allows."""
    extras = PROJECT["optional-dependencies"]
    words = [*PROJECT["dependencies"], *extras["verify"]]
    found = (re.fullmatch(r"([\w-]+)>=([\d.]+)", word) for word in words)
    return {match[1]: match[2] for match in found if match is not None}


@pytest.mark.nightly
def test_source_distribution_works_with_oldest_dependencies(
    tmp_path: Path, distributions: tuple[Path, Path]
) -> None:
    """The source distribution works with the oldest versions of its dependencies.

    The oldest numpy has no wheels for newer versions of Python; the newest versions are installed
    there.
    """
    oldest = oldest_versions() if sys.version_info[:2] <= _LATEST_OF_OLDEST else {}
    constraints = tmp_path / "constraints.txt"
    lines = [f"{name}=={version}.*\n" for name, version in oldest.items()]
    constraints.write_text("".join(lines))
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip: list[object] = [sys.executable, "-m", "pip", "--python", python]
    source = distributions[0]
    packages = [f"tflite2onnx[verify,images,completion] @ {source.as_uri()}", *_TOOLS]
    run_program([*pip, "install", "-q", "-c", constraints, *packages], tmp_path)
    freeze = run_program([*pip, "freeze"], tmp_path)
    for name, version in oldest.items():
        assert f"{name.lower()}=={version}." in freeze.lower().replace("_", "-")
    with tarfile.open(source) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from 3.11.4 on
        archive.extractall(tmp_path)  # noqa: S202 - an archive that the test has built
    (unpacked,) = tmp_path.glob("tflite2onnx-*")
    (unpacked / "tflite2onnx").rename(tmp_path / "elsewhere")  # the installed package is tested
    run_program([python, "-m", "pytest", "-p", "no:cacheprovider", *_TESTS], unpacked)
