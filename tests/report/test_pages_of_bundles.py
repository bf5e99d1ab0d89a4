"""`--report FOLDER`: a page for each model of a bundle, and for each signature of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.small import chain
from tests.test_bundle import archive
from tests.test_signatures import build_signatures
from tflite2onnx.cli import main

PAGES = {"a.html", "inner/b.html", "index.html"}


@pytest.fixture(autouse=True)
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a bundle to the current directory."""
    monkeypatch.chdir(tmp_path)
    models = {"a.tflite": chain("ABS"), "inner/b.tflite": chain("NEG")}
    Path("a.task").write_bytes(archive(models))


def list_pages(folder: str) -> set[str]:
    """Return the pages in a folder."""
    found = [path for path in Path(folder).rglob("*") if path.is_file()]
    assert all(path.read_bytes().startswith(b"<!doctype html>") for path in found)
    return {str(path.relative_to(folder)) for path in found}


def test_each_model_of_a_bundle_has_a_page() -> None:
    """A conversion writes pages, and so does `verify`, with files and without."""
    assert main(["-q", "a.task", "out", "--report", "pages"]) == 0
    assert list_pages("pages") == PAGES
    assert main(["verify", "-q", "a.task", "out", "--report", "new/verified/"]) == 0
    assert list_pages("new/verified") == PAGES
    assert main(["verify", "-q", "a.task", "--report", "new/converted"]) == 0
    assert list_pages("new/converted") == PAGES


def test_each_signature_of_a_model_has_a_page() -> None:
    """Each signature of a model has a page."""
    Path("s.tflite").write_bytes(build_signatures())
    words = ["-q", "s.tflite", "--signature", "all", "-o", "out", "--report", "pages"]
    assert main(words) == 0
    names = {path.stem for path in Path("out").glob("*.onnx")} | {"index"}
    assert list_pages("pages") == {f"{name}.html" for name in names}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["out", "--report", "a.html"], "--report must be a folder for several models or a bundle"),
        (["out", "--report", "a.task"], "a.task"),
        (["out", "--report", "file"], "--report must be a folder for several models or a bundle"),
        (["-o", "out", "s.tflite", "--report", "x.html"], "must be a folder for several models"),
    ],
)
def test_wrong_arguments_write_nothing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No page is written if an argument is wrong."""
    Path("file").touch()
    Path("s.tflite").write_bytes(chain("ABS"))
    before = sorted(Path().rglob("*"))
    assert main(["a.task", *words]) == 1
    assert message in capsys.readouterr().err
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("words", ["models -o out", "i.task out", "verify i.task"])
def test_a_page_is_not_the_list_of_the_pages(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model named index would lose its page, which the list would replace."""
    Path("models").mkdir()
    Path("models/index.tflite").write_bytes(chain("ABS"))
    Path("i.task").write_bytes(archive({"index.tflite": chain("ABS"), "b.tflite": chain("ABS")}))
    assert main([*words.split(), "--report", "pages"]) == 1
    assert "got pages/index.html for a model and for the list of the" in capsys.readouterr().err
    assert not Path("pages").exists()


def test_error_names_the_page_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the page."""
    Path("pages").mkdir()
    Path("pages/inner").touch()
    assert main(["-q", "a.task", "out", "--report", "pages"]) == 1
    assert "cannot write pages/inner/b.html: File exists" in capsys.readouterr().err
