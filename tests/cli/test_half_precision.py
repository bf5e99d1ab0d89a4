"""`--float16` and `--float16-io`: conversion to half precision."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.support.small import chain, network
from tests.test_bundle import archive
from tflite2onnx.cli import main

Captured = pytest.CaptureFixture[str]
MOBILENET = Path(__file__).parents[2] / "assets" / "models" / "mobilenet_float32.tflite"


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write models to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(chain("NEG", "EXP", "EXP", "ABS"))
    Path("network.tflite").write_bytes(network())
    Path("a.task").write_bytes(archive({"a": network()}))


def list_types(path: str) -> set[int]:
    """Return the element types of the inputs and outputs of a model."""
    graph = onnx.load(path).graph
    return {end.type.tensor_type.elem_type for end in (*graph.input, *graph.output)}


def test_summary_counts_float32_nodes_with_reasons(capsys: Captured) -> None:
    """The summary counts the nodes in float32 by type, with the reason."""
    assert main(["model.tflite", "--float16", "--verify"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines()[2:6] == [
        "6 nodes, 0 bytes moved by 0 Transposes, opset 17",
        "3 nodes in float32:",
        "  2 Exp  float16 may overflow",
        "  1 Abs  all inputs are in float32",
    ]
    assert list_types("model.onnx") == {onnx.TensorProto.FLOAT}


def test_float16_io_makes_inputs_and_outputs_float16(capsys: Captured) -> None:
    """--float16-io makes the inputs and outputs float16."""
    assert main(["network.tflite", "--float16", "--float16-io", "--verify"]) == 0
    assert list_types("network.onnx") == {onnx.TensorProto.FLOAT16}
    first = capsys.readouterr().out.splitlines()[0]
    assert first.split()[:3] == ["input", "x", "float16"]


def test_the_file_is_half_as_large() -> None:
    assert main([str(MOBILENET), "whole.onnx", "-q"]) == 0
    assert main([str(MOBILENET), "half.onnx", "-q", "--float16", "--verify"]) == 0
    whole, half = (
        sum(len(each.raw_data) for each in onnx.load(path).graph.initializer)
        for path in ("whole.onnx", "half.onnx")
    )
    assert half <= 0.51 * whole


def test_verify_applies_the_tolerance_of_half_precision(capsys: Captured) -> None:
    """The ONNX file records float16, so that `verify` applies the tolerance of half precision."""
    assert main(["network.tflite", "--float16", "-q", "--outputs", "positive"]) == 0
    words = ["verify", "network.tflite", "network.onnx", "--per-operator", "--report", "page.html"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "2 tensors, in order of execution: 2 right, 0 differ, 0 wrong" in out
    assert err == ""


def test_json_lists_float32_nodes_by_tensor(capsys: Captured) -> None:
    """The JSON output lists each float32 node by the tensor that it computes."""
    assert main(["model.tflite", "--float16", "--json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)["models"]
    assert model["float32_nodes"] == [
        {"op_type": "Exp", "tensor": "inner_2", "reason": "float16 may overflow"},
        {"op_type": "Exp", "tensor": "inner_3", "reason": "float16 may overflow"},
        {"op_type": "Abs", "tensor": "y", "reason": "all inputs are in float32"},
    ]


def test_bundles_and_several_models_become_float16() -> None:
    assert main(["a.task", "out", "--float16", "-q"]) == 0
    assert main(["model.tflite", "network.tflite", "--float16", "-q", "-o", "out"]) == 0
    for path in ("out/a.onnx", "out/network.onnx"):
        kinds = {each.data_type for each in onnx.load(path).graph.initializer}
        assert onnx.TensorProto.FLOAT not in kinds


def test_float16_io_needs_float16(capsys: Captured) -> None:
    """The error is one line, and nothing is written."""
    assert main(["model.tflite", "--float16-io"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "tflite2onnx: model.tflite: --float16-io must be given with --float16\n",
    )
    assert not Path("model.onnx").exists()
