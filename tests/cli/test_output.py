"""The output path of a single model; no model is ever overwritten."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.support.small import chain
from tests.test_bundle import archive
from tflite2onnx import convert
from tflite2onnx.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create two models and a bundle in the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("a.tflite").write_bytes(chain("ABS"))
    Path("b.tflite").write_bytes(chain("NEG"))
    Path("c.task").write_bytes(archive({"d.tflite": chain("COS")}))


@pytest.mark.parametrize("name", ["b.tflite", "new.TFLITE", "new.task", "new.lite", "new.tfl"])
@pytest.mark.parametrize("model", ["a.tflite", "c.task"])
@pytest.mark.parametrize("option", [[], ["-o"], ["--report"]])
def test_names_of_models_are_refused(
    capsys: Captured, model: str, name: str, option: list[str]
) -> None:
    """A shell may expand `*.tflite` to two models, so the second is refused as an output."""
    before = {path: path.read_bytes() for path in Path().iterdir()}
    assert main([model, *option, name]) == 1
    out, err = capsys.readouterr()
    what = "page" if option == ["--report"] else "output"
    advice = "" if option == ["--report"] else "; give the output of several models as -o FOLDER"
    assert out == ""
    assert err == (
        f"tflite2onnx: {model}: cannot write {name}: the {what} must not be named like a TFLite"
        f" model{advice}\n"
    )
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["a.tflite", "x"], "x"),
        (["a.tflite", "x.onnx"], "x.onnx"),
        (["a.tflite", "-o", "x.onnx"], "x.onnx"),
        (["-o", "x.ONNX", "a.tflite"], "x.ONNX"),
        (["a.tflite", "-o", "new/x.onnx"], "new/x.onnx"),
        (["a.tflite", "-o", "x"], "x/a.onnx"),
        (["a.tflite", "--output", "new/er"], "new/er/a.onnx"),
        (["a.tflite", "-o", "."], "a.onnx"),
        (["a.tflite", "-o", "old"], "old"),
        (["c.task", "-o", "new"], "new/d.onnx"),
        (["c.task", "new"], "new/d.onnx"),
    ],
)
def test_output_is_file_or_folder_by_its_name(words: list[str], file: str) -> None:
    """A positional output is a file; -o is a file if it ends in .onnx or exists, else a folder."""
    Path("old").write_bytes(b"old")
    assert main(["-q", *words]) == 0
    code = "COS" if "c.task" in words else "ABS"
    assert onnx.load(file) == convert(chain(code)).model


def test_folder_that_cannot_be_made_is_an_error(capsys: Captured) -> None:
    assert main(["a.tflite", "-o", "b.tflite/x.onnx"]) == 1
    assert "cannot write b.tflite/x.onnx: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", ""),
        ("--target tvm", "--target tvm sets --opset 19 --forms canonical --states required"),
        ("--target tvm --opset 18", "--target tvm sets --forms canonical --states required"),
        ("--target nnapi --static", "dynamic-range float --forms canonical --states required"),
        ("--target coreml", "--forms canonical --states required --static"),
    ],
)
def test_options_that_a_target_sets_are_printed(
    words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For one model and for several; options that the user gives are left out."""
    model = tmp_path / "a.tflite"
    model.write_bytes(chain("ABS"))
    for models in ([str(model)], [str(model), str(model)]):
        assert main([*models, "-o", str(tmp_path / "out"), *words.split()]) == 0
        out = capsys.readouterr().out
        assert told in " ".join(out.split())
        assert (" sets " in out) == bool(told)
        assert all(len(line) <= 120 for line in out.splitlines() if "--" in line)
