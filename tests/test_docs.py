"""The documents are true: their code runs, their tables are what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.toolkit import Build
from tflite2onnx import convert, register, unregister
from tflite2onnx.op.base import Operator

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: str) -> list[str]:
    """Return the Python code of a document."""
    text = (ROOT / document).read_text()
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def module(name: str, code: str) -> ModuleType:
    """Return a module made of a document's code."""
    made = ModuleType(name)
    exec(compile(code, name, "exec"), vars(made))  # noqa: S102 - our own document
    return made


@pytest.fixture
def shuffle() -> Iterator[type[Operator]]:
    """Register the operator that the document adds, while a test runs."""
    code = blocks("docs/adding-an-operator.md")[0]
    (cls,) = [
        c for c in vars(module("shuffle", code)).values()
        if isinstance(c, type) and issubclass(c, Operator) and c.__module__ == "shuffle"
    ]  # fmt: skip
    register("ChannelShuffle")(cls)
    yield cls
    unregister("ChannelShuffle")


def test_adding_an_operator(shuffle: type[Operator], tmp_path: Path) -> None:
    """The operator of the document is what its tests say."""
    assert shuffle.codes == ("ChannelShuffle",)
    tests = blocks("docs/adding-an-operator.md")[1]
    path = tmp_path / "test_shuffle.py"
    path.write_text(tests)
    assert pytest.main(["-q", "-p", "no:cacheprovider", "--no-cov", str(path)]) == 0


def test_an_operator_of_ones_own() -> None:
    """It registers itself, and converts."""
    module("swish", blocks("docs/adding-an-operator.md")[2])
    try:
        m = Build()
        m.output(*m.custom("SwishWithBeta", [m.input([2, 3])], [[2, 3]], {"beta": 2.0}))
        nodes = convert(m.bytes()).model.graph.node
        assert [node.op_type for node in nodes] == ["Mul", "Sigmoid", "Mul"]
    finally:
        unregister("SwishWithBeta")


def test_listening_to_a_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model of the document hears both chimes, and nothing else."""
    monkeypatch.chdir(ROOT)
    module("listening", blocks("docs/state.md")[0])
    printed = f"```text\n{capsys.readouterr().out}```"
    assert printed in (ROOT / "docs/state.md").read_text()


def test_the_code_in_the_document_is_clean(tmp_path: Path) -> None:
    """It is written as all other code is."""
    path = tmp_path / "shuffle.py"
    path.write_text(blocks("docs/adding-an-operator.md")[0])
    (tmp_path / "swish.py").write_text(
        '"""Swish."""\n\n' + blocks("docs/adding-an-operator.md")[2]
    )
    config = ROOT / "pyproject.toml"
    for tool in (
        ["ruff", "check", "--config", str(config), "--ignore", "INP001,ARG002", str(tmp_path)],
        ["mypy", "--config-file", str(config), "--follow-imports", "silent", str(tmp_path)],
    ):
        command = [sys.executable, "-m", *tool]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_links() -> None:
    """What a document refers to is there."""
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} refers to {target}"


def test_the_table_of_operators() -> None:
    """It is what `scripts/make_operator_table.py` makes."""
    made = import_module("scripts.make_operator_table").document()
    assert (ROOT / "docs" / "operators.md").read_text() == made


def test_the_command_reference_is_up_to_date() -> None:
    made = run_path(str(ROOT / "scripts" / "make_command_reference.py"))["document"]()
    kept = (ROOT / "docs" / "command-line.md").read_text()
    assert kept == made, "write it anew: python scripts/make_command_reference.py"
