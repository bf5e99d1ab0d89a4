"""`--inputs`, `--outputs` and `--rename`: conversion of a part of a model, and new names."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.support import Build
from tests.support.small import chain, network
from tests.test_bundle import archive
from tests.test_signatures import build_signatures
from tflite2onnx.cli import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write models to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(network())
    Path("signatures.tflite").write_bytes(build_signatures())
    Path("a.task").write_bytes(archive({"a": chain("ABS")}))


def list_names(path: str = "model.onnx") -> tuple[list[str], list[str], list[str]]:
    """Return the names of inputs and outputs, and the types of the nodes."""
    graph = onnx.load(path).graph
    names = [each.name for each in graph.input], [each.name for each in graph.output]
    return *names, [node.op_type for node in graph.node]


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["--inputs", "hidden"], (["hidden"], ["y"], ["Abs", "Conv"])),
        (["--outputs", "hidden,positive"], (["x"], ["hidden", "positive"], ["Conv", "Abs"])),
        (
            ["--outputs", "positive", "--outputs", "y", "--inputs", "hidden"],
            (["hidden"], ["positive", "y"], ["Abs", "Conv"]),
        ),
        (["--rename", "x=image", "--rename", "y=x"], (["image"], ["x"], ["Conv", "Abs", "Conv"])),
        (["--inputs=positive", "--rename=positive=p", "--rename=y=q"], (["p"], ["q"], ["Conv"])),
    ],
)
def test_part_has_operators_between_its_inputs_and_outputs(
    words: list[str], want: tuple[list[str], ...]
) -> None:
    """The model has the named inputs and outputs, and only the operators between them."""
    assert main(["model.tflite", *words, "--verify"]) == 0
    inputs, outputs, nodes = list_names()
    assert (inputs, outputs, [node for node in nodes if node != "Transpose"]) == want


def test_summary_lists_the_part_by_new_names(capsys: Captured) -> None:
    """The summary lists the inputs and outputs of the part by their new names."""
    words = ["--inputs", "hidden", "--outputs", "positive", "--rename", "hidden=features"]
    assert main(["model.tflite", *words]) == 0
    first, second, nodes, wrote = capsys.readouterr().out.splitlines()
    assert first.split()[:3] == ["input", "features", "float32"]
    assert second.split()[:3] == ["output", "positive", "float32"]
    assert nodes.startswith("1 node, ")
    assert wrote.startswith("wrote model.onnx, ")


def test_names_with_commas_are_quoted() -> None:
    """Names with commas are quoted as in CSV files."""
    m = Build()
    (y,) = m.op("ABS", [m.input([2], name="x")], [m.tensor([2], name="a,b")])
    m.output(*m.op("NEG", [y], [m.tensor([2], name="c=d")]))
    Path("model.tflite").write_bytes(m.bytes())
    words = ["--outputs", '"a,b",c=d', "--rename", "c=d=e"]
    assert main(["model.tflite", *words]) == 0
    assert list_names() == (["x"], ["a,b", "e"], ["Abs", "Neg"])


def test_parts_take_layouts_and_signatures() -> None:
    """--layout takes original names, also of new inputs; a signature can be cut and renamed."""
    words = ["--inputs", "hidden", "--outputs", "positive", "--layout", "hidden=NCHW"]
    assert main(["model.tflite", *words, "--rename", "hidden=h", "--verify"]) == 0
    (given,) = onnx.load("model.onnx").graph.input
    assert [d.dim_value for d in given.type.tensor_type.shape.dim] == [2, 12, 5, 7]
    words = ["--signature", "size", "--names", "signature", "--rename", "out=result"]
    assert main(["signatures.tflite", *words]) == 0
    assert list_names("signatures.onnx") == (["in"], ["result"], ["Abs"])
    words = ["--signature", "size", "--inputs", "ABS_x", "--outputs", "ABS_y", "--verify"]
    assert main(["signatures.tflite", *words]) == 0


def test_verify_reads_where_the_model_was_cut(capsys: Captured) -> None:
    """The ONNX file records where it was cut, so that LiteRT runs the same operators."""
    words = ["--inputs", "hidden", "--outputs", "positive", "--rename", "hidden=h", "-q"]
    assert main(["model.tflite", *words, "--static"]) == 0
    words = ["verify", "model.tflite", "model.onnx", "--report", "page.html", "--per-operator"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "1 tensor, in order of execution: 1 right, 0 differ, 0 wrong" in out
    assert err == ""
    assert "positive" in Path("page.html").read_text()
    assert main(["verify", "signatures.tflite", "model.onnx"]) == 1
    assert "signatures.tflite: the TFLite model cannot be cut as the ONNX model: --outputs:" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--inputs", "hiden"], "--inputs: the model has no tensor hiden; did you mean hidden?"),
        (["--outputs", "positiv,y"], "the model has no tensor positiv; did you mean positive?"),
        (["--outputs", "y,y"], "--outputs must name each tensor once, got y twice"),
        (
            ["--inputs", "hidden/filters"],
            "--inputs: hidden/filters is a constant; an input must be",
        ),
        (["--inputs", "x,hidden"], "--inputs: no output needs x"),
        (["--inputs", "y", "--outputs", "hidden"], "--inputs: the outputs also need x; name every"),
        (["--rename", "x"], "--rename must be OLD=NEW, once for each name, got x"),
        (["--rename", "x="], "--rename must be OLD=NEW, once for each name, got x="),
        (["--rename", "x=a", "--rename", "x=b"], "--rename must be OLD=NEW, once for each name"),
        (["--rename", "hidden=h"], "rename: the model has no input or output hidden"),
        (["--rename", "xy=h"], "rename: the model has no input or output xy; did you mean y or x?"),
        (["--rename", "x=y"], "rename: two inputs or outputs would be named y"),
        (
            ["signatures.tflite", "--rename", "x=y", "-o", "out"],
            "--rename must be given for one model",
        ),
        (
            ["signatures.tflite", "--inputs", "x", "-o", "out"],
            "--inputs must be given for one model",
        ),
    ],
)
def test_wrong_names_of_tensors_are_one_line_of_error(
    capsys: Captured, words: list[str], message: str
) -> None:
    """The error is one line, and nothing is written."""
    before = sorted(Path.cwd().iterdir())
    assert main(["model.tflite", *words]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert sorted(Path.cwd().iterdir()) == before


def test_cutting_a_bundle_is_refused(capsys: Captured) -> None:
    assert main(["a.task", "--outputs", "y"]) == 1
    assert capsys.readouterr().err == (
        "tflite2onnx: a.task: --outputs must be given for one model, got a bundle\n"
    )
