"""`--signature all`: each signature of a model in its own file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support import Build
from tests.support.small import chain
from tests.test_bundle import archive
from tests.test_signatures import build_signatures, unary
from tflite2onnx import convert
from tflite2onnx.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write models to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("plain.tflite").write_bytes(chain("ABS"))
    Path("several.tflite").write_bytes(build_signatures())
    Path("a.task").write_bytes(archive({"a": chain("ABS")}))


def list_written() -> set[str]:
    """Return the created files."""
    return {path.relative_to("out").as_posix() for path in Path("out").rglob("*.onnx")}


@pytest.mark.parametrize("folder", [["-o", "out"], ["out"]])
def test_each_signature_becomes_its_own_file(capsys: Captured, folder: list[str]) -> None:
    """Each file equals the conversion of its signature alone."""
    assert main(["several.tflite", *folder, "--signature", "all"]) == 0
    assert list_written() == {"minus.onnx", "same.onnx", "size.onnx"}
    for key in ("minus", "same", "size"):
        assert onnx.load(f"out/{key}.onnx") == convert(build_signatures(), signature=key).model
    out, err = capsys.readouterr()
    assert err == ""
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "minus:", "same:", "size:",
    ]  # fmt: skip
    assert out.splitlines()[-1] == "wrote 3 models and manifest.json to out"


def test_other_signatures_are_converted_if_one_fails(capsys: Captured) -> None:
    """Signatures are independent; keys that are no file names become file names."""
    m = Build()
    m.signature("a/b", *unary(m, "NEG"))
    m.signature("A b", *unary(m.subgraph("second"), "ABS"))
    add_unknown(m)
    Path("model.tflite").write_bytes(m.bytes())
    words = ["model.tflite", "--signature", "all", "-o", "out"]
    assert main([*words, "--verify"]) == 1
    out, err = capsys.readouterr()
    assert "tflite2onnx: ..: 1 operator cannot be converted:\n  Mystery" in err
    assert "\nwrote 2 models and manifest.json to out\nPASSED: a/b: " in out
    assert out.endswith("FAILED: model.tflite: not every signature is converted\n")
    assert list_written() == {"a_b.onnx", "a_b_1.onnx"}
    assert main([*words, "--json"]) == 1
    (told,) = json.loads(capsys.readouterr().out)["models"]
    assert [each["name"] for each in told["models"]] == ["a/b", "A b"]
    assert "Mystery" in "".join(told["messages"])


def add_unknown(m: Build) -> None:
    """Add a signature that cannot be converted."""
    graph = m.subgraph("unknown")
    x = graph.input([2], name="x")
    (y,) = graph.custom("Mystery", [x], [[2]])
    graph.output(y)
    m.signature("..", {"in": x}, {"out": y})


def test_nothing_is_written_if_all_signatures_fail(capsys: Captured) -> None:
    m = Build()
    x = m.input([2])
    m.output(*m.op("ABS", [x], [[2]]))
    add_unknown(m)
    Path("model.tflite").write_bytes(m.bytes())
    assert main(["model.tflite", "--signature", "all", "-o", "out"]) == 1
    assert "..: 1 operator cannot be converted:\n  Mystery" in capsys.readouterr().err
    assert not Path("out").exists()


def test_only_models_with_signatures_have_a_folder() -> None:
    """A model with signatures has a folder; a model without signatures is one file."""
    words = ["plain.tflite", "several.tflite", "--signature", "all", "-q", "-o", "out"]
    assert main(words) == 0
    files = {f"several/{key}.onnx" for key in ("minus", "same", "size")}
    assert list_written() == {"plain.onnx", *files}


def test_all_signatures_of_a_bundle_among_models_are_converted() -> None:
    """With other models on the command line all signatures of a bundle are converted."""
    words = ["a.task", "several.tflite", "--signature", "all", "-q", "-o", "out"]
    assert main(words) == 0
    files = {f"several/{key}.onnx" for key in ("minus", "same", "size")}
    assert list_written() == {"a/a.onnx", *files}


def test_model_without_signature_keeps_tensor_names(capsys: Captured) -> None:
    """A model without a signature keeps the names of its tensors; a warning says so."""
    words = ["plain.tflite", "several.tflite", "a.task", "--names", "signature", "-o", "out"]
    assert main([*words, "--signature", "minus"]) == 1
    assert (
        "plain.tflite: --signature must not be given, because the model has none"
        in capsys.readouterr().err
    )
    assert main(words) == 0
    assert (
        "tflite2onnx: plain.tflite: warning: plain.tflite has no signature: its inputs"
        in capsys.readouterr().err
    )
    for file, name in (("plain", "x"), ("several", "in"), ("a/a", "x")):
        assert onnx.load(f"out/{file}.onnx").graph.input[0].name == name
    assert main(["plain.tflite", "one.onnx", "--names", "signature"]) == 1
    assert "--names must be tensor, because the model has no signature" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["several.tflite"], "--signature all must be given with a model and -o FOLDER"),
        (["several.tflite", "o.onnx"], "--signature all must be given with a model and -o FOLDER"),
        (["several.tflite", "-o", "o.onnx"], "--signature all must be given with a model and -o"),
        (["plain.tflite", "-o", "out"], "the model has no signatures"),
        (["none.tflite", "-o", "out"], "cannot read none.tflite: No such file"),
        (
            ["several.tflite", "-o", "out", "--report", "x.html"],
            "--report must be a folder for several models or a bundle, each of which has a page,",
        ),
    ],
)
def test_wrong_signatures_are_one_line_of_error_and_no_file(
    capsys: Captured, words: list[str], message: str
) -> None:
    """The error is one line, and nothing is written."""
    assert main([*words, "--signature", "all"]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize("key", ["short", "long"])
def test_signatures_of_different_sizes_are_verified(key: str, capsys: Captured) -> None:
    """A signature is verified although another sub-graph has more tensors, or fewer."""
    m = Build()
    m.signature("short", *unary(m, "NEG"))
    more = m.subgraph("more")
    x = y = more.input([2, 3], name="x")
    for _ in range(4):
        (y,) = more.op("EXP" if y is x else "TANH", [y], [[2, 3]])
    more.output(y)
    m.signature("long", {"in": x}, {"out": y})
    Path("model.tflite").write_bytes(m.bytes())
    words = ["model.tflite", "--signature", key, "--verify", "--report", "page.html", "--json"]
    assert main([*words, "-o", "model.onnx"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["models"]
    assert len(found["verification"]["tensors"]) == {"short": 1, "long": 4}[key]
    assert Path("page.html").exists()
    assert main(["verify", "model.tflite", "model.onnx", "--report", "page.html"]) == 0


def test_verify_chooses_a_signature(capsys: Captured) -> None:
    """Without an ONNX model the signature is converted; a given model must have it."""
    assert main(["verify", "several.tflite", "--signature", "size"]) == 0
    out, err = capsys.readouterr()
    assert ("ABS_y" in out, err) == (True, "")
    assert main(["several.tflite", "--signature", "size", "size.onnx"]) == 0
    assert main(["verify", "several.tflite", "size.onnx", "--signature", "size"]) == 0
    capsys.readouterr()
    assert main(["verify", "several.tflite", "size.onnx", "--signature", "minus"]) == 1
    assert "--signature must be size, which the converted model has, got minus" in (
        capsys.readouterr().err
    )
    assert main(["verify", "several.tflite", "size.onnx", "--signature", "sise"]) == 1
    assert "--signature must be minus, same or size, got sise; did you mean size?" in (
        capsys.readouterr().err
    )


def test_verify_verifies_each_signature(capsys: Captured) -> None:
    assert main(["verify", "several.tflite", "--signature", "all"]) == 0
    out, _ = capsys.readouterr()
    assert [line for line in out.splitlines() if line.endswith(":") and " " not in line] == [
        "minus:",
        "same:",
        "size:",
    ]
    assert main(["several.tflite", "--signature", "all", "-o", "out"]) == 0
    capsys.readouterr()
    assert main(["verify", "several.tflite", "out", "--signature", "all"]) == 0
    assert capsys.readouterr().out.startswith("minus:")


def test_verify_warns_once(capsys: Captured) -> None:
    """Verification converts a model again, to see the tensors between the operators."""
    m = Build()
    m.signature("one", *unary(m, "NEG"))
    m.signature("two", *unary(m.subgraph("second"), "ABS"))
    stored = m.constant(np.array([2, 3], np.uint8).view(np.bool_))
    m.output(*m.op("CAST", [stored], [[2]], dtype="float32"))
    Path("model.tflite").write_bytes(m.bytes())
    for words in (["verify", "model.tflite"], ["model.tflite", "one.onnx", "--verify"]):
        assert main(words) == 0
        lines = capsys.readouterr().err.splitlines()
        assert len([line for line in lines if "signatures" in line]) == 1
        assert len([line for line in lines if "BOOL" in line]) == 1
