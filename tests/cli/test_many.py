"""tflite2onnx/cli/many.py: several models in one run; a model that fails does not stop the run."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from tests.support.small import chain, network
from tests.test_bundle import archive, unknown
from tflite2onnx import convert
from tflite2onnx.cli import convert as command, main

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tflite2onnx import Result
    from tflite2onnx.verification import Report

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder of models in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "deep" / "er").mkdir(parents=True)
    files = {
        "a.tflite": chain("ABS"), "deep/b.TFL": chain("NEG"), "deep/er/a.lite": network(),
        "deep/two.task": archive({"c.tflite": chain("COS"), "d.tflite": chain("SIN")}),
        "readme.txt": b"no model",
    }  # fmt: skip
    for name, data in files.items():
        (tmp_path / "models" / name).write_bytes(data)
    return tmp_path


def list_written(name: str = "out") -> set[str]:
    """Return the relative paths of all files in a folder."""
    return {p.relative_to(name).as_posix() for p in Path(name).rglob("*") if p.is_file()}


WANT = {
    "a.onnx", "deep/b.onnx", "deep/er/a.onnx", "deep/two/c.onnx", "deep/two/d.onnx",
    "deep/two/manifest.json",
}  # fmt: skip


@pytest.mark.parametrize("jobs", [[], ["--jobs", "3"]])
def test_models_of_a_folder_keep_their_paths(capsys: Captured, jobs: list[str]) -> None:
    """Models keep their relative paths; a table lists the results."""
    assert main(["models", "-o", "out/new", *jobs]) == 0
    assert list_written("out/new") == WANT
    assert onnx.load("out/new/deep/b.onnx") == convert(chain("NEG")).model
    out, err = capsys.readouterr()
    assert err == ""
    head, *rows, total = out.splitlines()
    assert head.split() == ["model", "written", "bytes", "nodes"]
    sizes = [Path(f"out/new/{name}").stat().st_size for name in ("a.onnx", "deep/b.onnx")]
    assert [row.split() for row in rows[:2]] == [
        ["models/a.tflite", "out/new/a.onnx", str(sizes[0]), "1"],
        ["models/deep/b.TFL", "out/new/deep/b.onnx", str(sizes[1]), "1"],
    ]
    assert rows[3].split()[:2] == ["models/deep/two.task", "out/new/deep/two"]
    assert total.startswith("4 of 4 models converted, ")


def test_files_keep_their_names_in_the_output_folder(capsys: Captured) -> None:
    """Each file keeps its name in the output folder; options apply to all models."""
    words = ["models/a.tflite", "models/deep/b.TFL", "-o", "out", "-q", "--opset", "19"]
    assert main(words) == 0
    assert capsys.readouterr() == ("", "")
    assert list_written() == {"a.onnx", "b.onnx"}
    assert onnx.load("out/b.onnx").opset_import[0].version == 19


@pytest.mark.parametrize("jobs", [[], ["--jobs", "2"]])
def test_failures_do_not_stop_other_models(capsys: Captured, jobs: list[str]) -> None:
    """Each failure is one line on stderr; the other models are converted."""
    Path("models/mystery.tflite").write_bytes(unknown())
    Path("models/bad.tflite").write_bytes(b"bad")
    assert main(["models", "none.tflite", "-o", "out", *jobs]) == 1
    assert list_written() == WANT
    out, err = capsys.readouterr()
    missing, bad, mystery = sorted(err.splitlines())
    assert missing == "tflite2onnx: cannot read none.tflite: No such file or directory"
    assert bad.startswith("tflite2onnx: models/bad.tflite: the file is truncated: too short")
    assert mystery.startswith(
        "tflite2onnx: models/mystery.tflite: 1 operator cannot be converted: mystery (operator 0,"
    )
    assert out.count("FAILED") == 3
    assert out.splitlines()[-1].startswith("4 of 7 models converted, 3 failed, ")


def test_json_has_output_or_error_of_each_model(capsys: Captured) -> None:
    """--json prints the output or the error of each model."""
    Path("models/bad.tflite").write_bytes(b"bad")
    assert main(["models", "-o", "out", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["converted"], told["failed"]) == (4, 1)
    models = {each["model"]: each for each in told["models"]}
    assert list(models) == sorted(models)
    a, bad, two = (models[f"models/{n}"] for n in ("a.tflite", "bad.tflite", "deep/two.task"))
    assert (a["output"], a["nodes"], a["inputs"][0]["name"]) == ("out/a.onnx", 1, "x")
    assert a["bytes"] == Path("out/a.onnx").stat().st_size
    assert "too short" in bad["error"]
    assert [part["name"] for part in two["models"]] == ["c.tflite", "d.tflite"]


def test_json_of_one_model_has_the_same_form(capsys: Captured) -> None:
    """The JSON output of one model has the form of several models."""
    assert main(["models/a.tflite", "--json", "--verify"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["models"]
    assert told["output"] == "models/a.onnx"
    assert told["verification"]["ok"]
    assert Path("models/a.onnx").exists()


def test_file_listed_twice_is_converted_once() -> None:
    """A model that is listed repeatedly is converted once."""
    assert main(["models", "models/a.tflite", "models/a.tflite", "-q", "-o", "out"]) == 0
    assert list_written() == WANT


def test_table_has_verdict_on_each_model(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the verdict on each model; a difference gives exit status 2."""

    def wrong(model: str, **options: Any) -> Result:
        return convert(chain("NEG") if model.endswith("a.tflite") else model, **options)

    assert main(["models", "-o", "out", "--verify"]) == 0
    out = capsys.readouterr().out
    assert out.count(" PASSED\n") == 4
    assert out.splitlines()[-1].startswith("PASSED: 4 of 4 models converted, ")
    monkeypatch.setattr(command, "convert", wrong)
    assert main(["models", "-o", "out2", "--verify"]) == 2
    out = capsys.readouterr().out
    assert out.count(" FAILED\n") == 1
    assert out.splitlines()[-1].startswith("FAILED: 4 of 4 models converted, 1 different, ")


@pytest.mark.parametrize("option", [["--verify"], ["--report", "pages"]])
def test_runtime_crash_fails_one_model(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    """A crash of LiteRT fails one model; the other models are converted."""

    def crash(model: str, *_: Any, **options: Any) -> Report:
        if str(model).endswith("a.tflite"):
            os.kill(os.getpid(), signal.SIGKILL)
        return verify(model, *_, **options)

    from tflite2onnx.verification import verify  # noqa: PLC0415 - before it is another

    monkeypatch.setattr("tflite2onnx.verification.verify", crash)
    assert main(["models", "-o", "out", *option]) == 1
    assert list_written() == WANT - {"a.onnx"}
    err = capsys.readouterr().err
    assert "a.tflite: LiteRT or ONNX Runtime crashed: the process had the exit status -9" in err


@pytest.mark.parametrize("verbose", [[], ["-v"]])
def test_unexpected_exception_fails_one_model(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, verbose: list[str]
) -> None:
    """An unexpected exception fails one model; -v prints the traceback."""

    def fail(model: str, **options: Any) -> Result:
        if "deep" in model:
            return convert(model, **options)
        raise KeyError(model)

    monkeypatch.setattr(command, "convert", fail)
    assert main(["models", "-o", "out", *verbose]) == 1
    err = capsys.readouterr().err
    assert "tflite2onnx: models/a.tflite: this is a bug in tflite2onnx" in err
    assert ("Traceback" in err) == bool(verbose)


def test_warnings_name_the_model(capsys: Captured) -> None:
    """Log messages start with the name of the model if there are several models."""
    from tests.test_signatures import build_signatures  # noqa: PLC0415 - which has tests of its own

    Path("models/several.tflite").write_bytes(build_signatures())
    assert main(["models", "-o", "out"]) == 0
    assert capsys.readouterr().err.startswith("tflite2onnx: models/several.tflite: ")


def test_interrupt_keeps_and_counts_converted_models(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that were converted before the interrupt are kept and counted."""

    def interrupt(model: str, **options: Any) -> Result:
        if "deep" in model:
            raise KeyboardInterrupt
        return convert(model, **options)

    monkeypatch.setattr(command, "convert", interrupt)
    assert main(["models", "-o", "out"]) == 130
    out, err = capsys.readouterr()
    assert err == "tflite2onnx: interrupted: 1 of 4 models converted\n"
    assert out.splitlines()[1].startswith("models/a.tflite  out/a.onnx")
    assert list_written() == {"a.onnx"}


def test_progress_is_shown_and_erased_on_a_terminal(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A progress bar is shown on a terminal, and erased before other text."""
    Path("models/bad.tflite").write_bytes(b"bad")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["models", "-o", "out"]) == 1
    err = capsys.readouterr().err
    assert "5/5" in err
    assert "\rtflite2onnx: models/bad.tflite: the file is truncated" in err.replace(" \r", "\r")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert main(["models", "-o", "out"]) == 1
    err = capsys.readouterr().err
    assert "5/5" not in err
    assert "\r\x1b[K5 of 5 models" in err


FILES: Mapping[str, bytes] = {"other/a.tflite": chain("ABS"), "a.task": archive({"x": chain()})}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["models"], "models is a folder: give the folder to write to, as -o FOLDER"),
        (
            ["models/a.tflite", "models/deep/b.TFL", "out"],
            "the output of 3 models must be given, as -o FOLDER",
        ),
        (
            ["models", "-o", "models/readme.txt"],
            "cannot write to models/readme.txt: the output of several models must be a folder",
        ),
        (
            ["models", "other/a.tflite", "-o", "out"],
            "models/a.tflite and other/a.tflite must have different outputs, got out/a.onnx",
        ),
        (
            ["empty", "-o", "out"],
            "empty must have a model in it, but no file ends in .tflite, .lite, .tfl, .task or .li",
        ),
        (["models", "-o", "out", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (
            ["models", "-o", "out", "--layout", "x.json"],
            "--layout must be given for one model, got several",
        ),
        (
            ["models", "-o", "out", "--report", "x.html"],
            "--report must be a folder for several models or a bundle, each of which has a page,",
        ),
        (["a.task", "nested", "-o", "out"], "must have different folders, got out/a for both"),
        (["models", "--opset", "5", "-o", "out"], "--opset must be 9 to"),
    ],
)
def test_wrong_arguments_are_one_line_of_error_and_no_file(
    capsys: Captured, words: list[str], message: str
) -> None:
    """The error is one line, and nothing is written."""
    for name in ("other", "nested/a", "empty"):
        Path(name).mkdir(parents=True)
    for name, data in {**FILES, "nested/a/x.tflite": chain("NEG")}.items():
        Path(name).write_bytes(data)
    assert main(words) == 1
    assert not Path("out").exists()
    assert message in capsys.readouterr().err


def test_unreadable_folder_is_an_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable subfolder is an error."""

    def walk(path: str, onerror: Any) -> list[Any]:
        onerror(PermissionError(13, "Permission denied", f"{path}/deep"))
        return []

    monkeypatch.setattr(os, "walk", walk)
    assert main(["models", "-o", "out"]) == 1
    assert "cannot read models/deep: Permission denied" in capsys.readouterr().err


def test_output_must_not_replace_one_of_the_models(capsys: Captured) -> None:
    """A model is not overwritten, even if the output is a hard link to it."""
    Path("out").mkdir()
    Path("out/a.onnx").hardlink_to("models/a.tflite")
    assert main(["models", "-o", "out"]) == 1
    assert "cannot write out/a.onnx: it is one of the models" in capsys.readouterr().err
    assert Path("models/a.tflite").read_bytes() == chain("ABS")


def test_resume_leaves_out_outputs_newer_than_their_models(capsys: Captured) -> None:
    """With --resume, models are converted whose output is absent, or older than the model."""
    Path("three").mkdir()
    for name in ("a", "b", "c"):
        Path("three", f"{name}.tflite").write_bytes(chain("ABS"))
    words = ["three", "-o", "out", "--resume", "--verify"]
    assert main(words) == 0
    kept = Path("out/c.onnx")
    os.utime("three/a.tflite", (2e9, 2e9))
    Path("out/b.onnx").unlink()
    before = kept.stat().st_mtime_ns
    capsys.readouterr()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "1 model left out: the output is newer than the model" in out
    assert "2 of 2 models converted" in out
    assert kept.stat().st_mtime_ns == before
    os.utime("three/a.tflite", (1e9, 1e9))
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"converted": 0, "failed": 0, "models": []}
    assert main(["three/a.tflite", "out/a.onnx", "--resume"]) == 1
    assert "--resume must be given with a folder" in capsys.readouterr().err


def test_models_that_do_not_exist_are_named_one_by_one(capsys: Captured) -> None:
    """Together their names are longer than a name of a file may be."""
    missing = [f"{'model' * 9}{i}.tflite" for i in range(9)]
    assert main([*missing, "-o", "out"]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in errors] == [f"cannot read {name}" for name in missing]


def test_resume_keeps_earlier_pages_in_the_index(capsys: Captured) -> None:
    """A model is converted again if its page is absent; the index links the pages of all models."""
    words = ["models", "-o", "out", "--resume", "--report", "pages"]
    assert main(words) == 0
    Path("pages/a.html").unlink()
    assert main(words) == 0
    assert "2 of 2 models converted" in capsys.readouterr().out  # and the bundle
    index = Path("pages/index.html").read_text("utf-8")
    links = re.findall(r'<a href="([^"]+)">', index)
    assert {"a.html", "deep/b.html", "deep/er/a.html"} <= {*links}
    assert "are within their limits. 2 pages of an earlier run." in index


def test_report_of_a_folder_is_an_index_of_pages(capsys: Captured) -> None:
    """Each model has a page in the place of its ONNX file; the index links it, faults first."""
    Path("models/bad.tflite").write_bytes(b"no model")
    assert main(["models", "-o", "out", "--report", "pages"]) == 1
    index = Path("pages/index.html").read_text("utf-8")
    links = re.findall(r'<a href="([^"]+)">', index)
    assert links
    assert all(Path("pages", link).exists() for link in links)
    assert {Path(link).with_suffix(".onnx") for link in links} == {
        path.relative_to("out") for path in Path("out").rglob("*.onnx")
    }
    assert index.index("FAILED") < index.index(links[0])
    *_, wrote, verdict = capsys.readouterr().out.splitlines()
    assert wrote.startswith(f"wrote {Path('pages', 'index.html')}")
    assert verdict.startswith("FAILED: ")
