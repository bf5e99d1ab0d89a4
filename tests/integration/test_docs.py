"""The documents: their code runs, and their links, commands and tables are up to date."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import TYPE_CHECKING

import onnx
import pytest

from tests.support import Build
from tests.support.project import PROJECT
from tflite2onnx import convert, unregister

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: str) -> list[str]:
    """Return the Python code of a document."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def module(name: str, code: str) -> ModuleType:
    """Return a module made of a document's code."""
    made = ModuleType(name)
    exec(compile(code, name, "exec"), vars(made))  # noqa: S102 - our own document
    return made


def test_numbers_of_the_first_pages_are_those_of_the_table_of_networks() -> None:
    """README and the questions state how many networks have no Transpose, and how many convert."""
    table = (ROOT / "docs" / "models.md").read_text()
    total, none = re.findall(
        r"of (\d+) networks are.*?and (\d+) of them have none", table, re.DOTALL
    )[0]
    for name in ("README.md", "docs/faq.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert re.search(rf"{none} of {total} (published (models|networks) )?have no", text), name
    (row,) = re.findall(
        r"^\| converted of (\d+) published .*", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert row == total


GUIDE = "docs/adding-an-operator.md"
TABLE = "builtin_modules.py"


def guided_files() -> dict[str, str]:
    """Return the files that the guide tells the reader to create or change, in its order."""
    text = (ROOT / GUIDE).read_text()
    files: dict[str, str] = {}
    block = re.compile(r"((?:[^\n]+\n)+)\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    for paragraph, code in block.findall(text):
        named = re.findall(r"(?:Create|to the table in) `([\w/.]+)`", " ".join(paragraph.split()))
        files |= dict.fromkeys(named[-1:], code)
    return files


def run_module(
    place: Path, *words: str, path: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a Python module in a folder; `path` lists further folders to import from."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [place, *path]))}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=env)


def list_created_files() -> list[str]:
    """Return the files that the guide tells the reader to create in the project."""
    return [
        name
        for name in guided_files()
        if name.startswith(("tflite2onnx/", "tests/")) and Path(name).name != TABLE
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with the files of the guide, but without the registration.

    A reader who has followed the guide has these files, and the registration, already.
    """
    place = tmp_path_factory.mktemp("project")
    for name in ("tflite2onnx", "tests", "scripts", "docs"):
        ignored = shutil.ignore_patterns("__pycache__", "data")
        shutil.copytree(ROOT / name, place / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", place)
    files = guided_files()
    for name in list_created_files():
        path = place / name
        path.parent.mkdir(exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(files[name])
    (table,) = (name for name in files if Path(name).name == TABLE)
    text = (place / table).read_text()
    (place / table).write_text(text.replace(files[table], ""))
    return place


def test_guide_adds_an_operator_to_the_project(project: Path) -> None:
    """The steps of the guide work; without the registration the error names the table."""
    files = guided_files()
    (table,) = (name for name in files if Path(name).name == TABLE)
    (test,) = [n for n in files if Path(n).name.startswith("test_")]
    matrix = run_module(project, "tests.conformance", "ChannelShuffle")
    message = re.findall(r"^ChannelShuffle must .*$", (ROOT / GUIDE).read_text(), re.MULTILINE)
    assert matrix.returncode
    assert message[0] in matrix.stderr

    assert not run_module(project, "scripts.make_module_table").returncode
    assert files[table] in (project / table).read_text()
    tests = run_module(project, "pytest", "-q", "-p", "no:cacheprovider", test)
    assert not tests.returncode, tests.stdout
    matrix = run_module(project, "tests.conformance", "ChannelShuffle")
    assert not matrix.returncode, matrix.stdout + matrix.stderr
    assert "1 operators: " in matrix.stdout
    assert "| [`ChannelShuffle`]" in (project / "docs" / "operators.md").read_text()


def test_code_of_the_guide_passes_ruff_and_mypy(project: Path, tmp_path: Path) -> None:
    """The code of the guide passes ruff and mypy, in the project and as a package."""
    files = {name: code for name, code in guided_files().items() if name.endswith(".py")}
    own = list_created_files()
    assert len(own) == 3
    places = [tmp_path / name for name in files if name.startswith("mypackage/")]
    assert len(places) == 4
    places[0].parent.mkdir()
    (places[0].parent / "__init__.py").touch()
    for place in places:
        place.write_text(files[str(place.relative_to(tmp_path))])
    for tool in (
        ["ruff", "check", *own],
        ["ruff", "check", "--config", "pyproject.toml", "--ignore", "ARG002,D104", str(tmp_path)],
        ["mypy", "--follow-imports", "silent", *own, *map(str, places)],
    ):
        done = run_module(project, *tool)
        assert not done.returncode, done.stdout + done.stderr


def test_operator_of_an_installed_package_is_converted(tmp_path: Path) -> None:
    """The operator of an installed package is listed and converted."""
    files = guided_files()
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "operators.py").write_text(files["mypackage/operators.py"])
    info = tmp_path / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    points = files["pyproject.toml"].partition("[project.entry-points.")[2].replace('"', "")
    (info / "entry_points.txt").write_text(f"[{points}")
    assert "SwishWithBeta" in run_module(tmp_path, "tflite2onnx", "ops", path=[ROOT]).stdout

    m = Build()
    m.output(*m.custom("SwishWithBeta", [m.input([2, 3])], [[2, 3]], {"beta": 2.0}))
    (tmp_path / "model.tflite").write_bytes(m.bytes())
    done = run_module(tmp_path, "tflite2onnx", "model.tflite", path=[ROOT])
    assert not done.returncode, done.stderr
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert [node.op_type for node in nodes] == ["Mul", "Sigmoid", "Mul"]


def test_functions_of_the_guide_are_converted_by_their_rows() -> None:
    """Each row of the table in the guide converts an operator with an option."""
    module("functions", guided_files()["mypackage/functions.py"])
    try:
        for code, option, node in (
            ("CeluOfAlpha", "alpha", "Celu"),
            ("HardShrink", "limit", "Shrink"),
        ):
            m = Build()
            m.output(*m.custom(code, [m.input([2, 3])], [[2, 3]], {option: 0.5}))
            (made,) = convert(m.bytes()).model.graph.node
            assert (made.op_type, made.attribute[0].f) == (node, 0.5)
    finally:
        unregister("CeluOfAlpha", "HardShrink")


def test_pass_of_an_installed_package_replaces_its_operator(tmp_path: Path) -> None:
    """The pass in the guide makes a sum and a product, if its package is installed."""
    files, package = guided_files(), tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in ("offers", "lower_scaled_sum"):
        (package / f"{name}.py").write_text(files[f"mypackage/{name}.py"])
    info = tmp_path / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    (points,) = re.findall(r'"(tflite2onnx.offers)"\]\n(.*)', (ROOT / GUIDE).read_text())
    (info / "entry_points.txt").write_text("[{}]\n{}".format(*points).replace('"', ""))
    m = Build()
    x = m.input([2, 3])
    m.output(*m.custom("ScaledSum", [x, x], [[2, 3]], {"scale": 0.5}))
    (tmp_path / "model.tflite").write_bytes(m.bytes())
    done = run_module(tmp_path, "tflite2onnx", "model.tflite", path=[ROOT])
    assert not done.returncode, done.stderr
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    assert [node.op_type for node in nodes] == ["Add", "Mul"]


def test_code_of_the_state_guide_prints_the_shown_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The code of docs/state.md prints the output in the document."""
    monkeypatch.chdir(ROOT)
    module("listening", blocks("docs/state.md")[0])
    printed = f"```text\n{capsys.readouterr().out}```"
    assert printed in (ROOT / "docs/state.md").read_text()


def test_links_in_documents_lead_to_existing_files() -> None:
    """Links in documents lead to existing files."""
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} refers to {target}"


def test_links_in_the_readme_are_absolute_and_exist() -> None:
    """A package index shows the README, so its links must be absolute and must exist."""
    text = (ROOT / "README.md").read_text()
    assert not re.findall(r"\]\((?!https?://|#)", text)
    (base,) = set(re.findall(r"https://github\.com/[\w/-]+/blob/main/", text))
    home = PROJECT["urls"]["Homepage"]
    assert base == f"{home}/blob/main/"
    defined = dict(re.findall(r"^\[([\w-]+)\]: (.*)$", text, re.MULTILINE))
    assert set(re.findall(r"\]\[([\w-]+)\]", text)) == defined.keys()
    for link in [*defined.values(), *PROJECT["urls"].values()]:
        colab = "https://colab.research.google.com/github/zhenhuaw-me/tflite2onnx"
        file = re.sub(r"^/(blob|tree)/main/", "", link.removeprefix(home).removeprefix(colab))
        assert file in ("", "/issues", "/actions/workflows/tests.yml") or (ROOT / file).exists(), (
            link
        )


def test_files_and_modules_in_commands_exist() -> None:
    """The files and modules in commands exist, or the guide creates them."""
    created = guided_files()
    run_by = r"\b(?:pytest|python|scripts/check) ([^`\n|]+)"
    for path in DOCUMENTS:
        for command in re.findall(run_by, path.read_text()):
            for file in re.findall(r"(?:tests|scripts|examples)/[\w/]+(?:\.py)?", command):
                assert (ROOT / file).exists() or file in created, f"{path.name} runs {file}"
            for name in re.findall(r"-m ((?:tests|scripts)[\w.]*)", command):
                assert find_spec(name), f"{path.name} runs {name}"


def test_table_of_operators_is_current() -> None:
    """docs/operators.md equals the output of `tests.conformance.operator_table.py`."""
    made = import_module("tests.conformance.operator_table").document()
    assert (ROOT / "docs" / "operators.md").read_text() == made


@pytest.mark.parametrize("package", ["contrib", "op"])
def test_table_of_modules_is_current(package: str) -> None:
    script = run_path(str(ROOT / "scripts" / "make_module_table.py"))
    made = script["document"](f"tflite2onnx.{package}")
    kept = (ROOT / "tflite2onnx" / package / TABLE).read_text()
    assert kept == made, "write it anew: python scripts/make_module_table.py"


def test_list_of_rules_is_current() -> None:
    """docs/performance.md has the rules of the passes."""
    made = run_path(str(ROOT / "scripts" / "make_form_list.py"))["document"]()
    kept = (ROOT / "docs" / "performance.md").read_text()
    assert kept == made, "write it anew: python scripts/make_form_list.py"


def test_the_command_reference_is_up_to_date() -> None:
    made = run_path(str(ROOT / "scripts" / "make_command_reference.py"))["document"]()
    kept = (ROOT / "docs" / "command-line.md").read_text()
    assert kept == made, "write it anew: python scripts/make_command_reference.py"
