"""`inspect`, as data and on the command line."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.dynamic_sizes.test_networks import MODELS
from tests.golden.records import ASSETS
from tests.support import Build
from tests.support.graph_text import make_model
from tflite2onnx.cli import main
from tflite2onnx.errors import ModelFileError
from tflite2onnx.inspection import OperatorInfo, inspect

if TYPE_CHECKING:
    from pathlib import Path

    Captured = pytest.CaptureFixture[str]

SCHEMES = {
    "keywords_float32": "float32",
    "keywords_float16": "float32 with float16 weights",
    "keywords_dynamic_range": "dynamic range: float32 with int8 weights",
    "keywords_int8": "int8, weights by channel",
    "keywords_int16x8": "int16 with int8 weights, weights by channel",
    "keywords_uint8": "int8, weights by channel",  # only its inputs and outputs are uint8
}


@pytest.mark.parametrize("name", SCHEMES)
def test_schemes_of_models_are_recognized(name: str) -> None:
    assert inspect(ASSETS / f"{name}.tflite").scheme == SCHEMES[name]


def test_warnings_name_only_inputs_of_the_model(capsys: Captured) -> None:
    """Operators are also converted alone, and then read inner tensors as inputs."""
    assert main(["inspect", str(MODELS / "lstm.tflite")]) == 0
    (warning,) = capsys.readouterr().err.splitlines()
    assert "warning: axis serving_default_input:0_1 is fixed as in the file" in warning


def test_models_of_several_schemes_are_called_mixed() -> None:
    m = Build()
    x = m.input([2, 3], dtype="int8", scale=0.1, zero_point=1)
    m.output(*m.op("ABS", m.op("DEQUANTIZE", [x], [[2, 3]], dtype="float32"), [[2, 3]]))
    m.output(*m.op("ABS", [x], [[2, 3]], dtype="int8", scale=0.1, zero_point=1))
    assert inspect(m.bytes()).scheme == "mixed: float32 and int8"
    m = Build()
    m.output(*m.op("NEG", [m.input([2, 3], dtype="int32")], [[2, 3]], dtype="int32"))
    assert inspect(m.bytes()).scheme == "no real numbers"


def model(*codes: str) -> bytes:
    """Return a chain of operators over float32[2, 3]; the first operator reads a constant."""
    m = Build(description="a chain")
    y = m.op("ADD", [m.input([2, 3], name="x"), m.constant(np.ones((2, 3), np.float32))], [[2, 3]])
    for code in codes:
        y = (m.custom if code.islower() else m.op)(code, y, [[2, 3]])
    m.output(*y)
    return m.bytes()


def test_operators_are_counted_with_their_bytes() -> None:
    found = inspect(model("ABS", "ABS"))
    (graph,) = found.subgraphs
    assert graph.operators == (
        OperatorInfo("ABS", custom=False, count=2, bytes=0, opset=17, problems=()),
        OperatorInfo("ADD", custom=False, count=1, bytes=24, opset=17, problems=()),
    )
    assert [(t.name, t.dtype, t.shape) for t in graph.inputs] == [("x", "float32", (2, 3))]
    assert (found.opset, found.problem, found.description) == (17, "", "a chain")


def test_problems_of_unsupported_operators_are_listed() -> None:
    found = inspect(model("mystery", "ABS"))
    assert found.opset is None
    assert "mystery" in found.problem
    problems = {info.code: info.problems for info in found.subgraphs[0].operators}
    assert not problems["ABS"]
    assert not problems["ADD"]
    assert len(problems["mystery"]) == 1


def test_model_without_outputs_is_described() -> None:
    m = Build()
    m.op("ABS", [m.input([2, 3])], [[2, 3]])
    found = inspect(m.bytes())
    assert found.opset is None
    assert "must have an output" in found.problem
    assert found.subgraphs[0].operators[0].opset == 17


def test_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.tflite"
    path.write_text("this is not a TFLite model")
    with pytest.raises(ModelFileError, match="not a TFLite model"):
        inspect(path)


def run_inspect(tmp_path: Path, data: bytes, *options: str) -> int:
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    return main(["inspect", str(path), *options])


def test_lines_show_scheme_inputs_and_opset(tmp_path: Path, capsys: Captured) -> None:
    assert run_inspect(tmp_path, model("ABS")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "a chain"
    assert lines[1].endswith("bytes, float32")
    assert any(line.split() == ["input", "x", "float32[2,", "3]"] for line in lines)
    assert lines[-1] == "can be converted, to opset 17"


def test_lines_show_scales_and_dynamic_sizes(tmp_path: Path, capsys: Captured) -> None:
    m = Build()
    x = m.input([1, 3], dtype="int8", scale=0.5, zero_point=-3, shape_signature=[-1, 3])
    m.output(*m.op("ABS", [x], [[1, 3]], dtype="int8", scale=0.5, zero_point=-3))
    assert run_inspect(tmp_path, m.bytes()) == 0
    said = capsys.readouterr().out
    assert "int8[?, 3]  0.5 * (stored + 3)" in said


def test_exit_status_is_1_for_unconvertible_models(tmp_path: Path, capsys: Captured) -> None:
    assert run_inspect(tmp_path, model("mystery")) == 1
    said = capsys.readouterr()
    assert "no: " in said.out
    assert "mystery (operator 1" in said.out
    assert run_inspect(tmp_path, model("mystery"), "-q") == 1
    assert not capsys.readouterr().out


def test_graph_is_printed_as_text(tmp_path: Path, capsys: Captured) -> None:
    text = "inputs %0: float32[2]\n%1: float32[2] = ABS(%0)\nreturn %1"
    assert run_inspect(tmp_path, make_model(text), "--graph") == 0
    assert capsys.readouterr().out.endswith(f"\n\nmain:\n{text}\n")


def test_json_has_operators_and_opset(tmp_path: Path, capsys: Captured) -> None:
    assert run_inspect(tmp_path, model("ABS"), "--json") == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["subgraphs"][0]["operators"][0]["code"] == "ABS"
    assert said["opset"] == 17


def test_models_of_a_bundle_are_inspected(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "two.task"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good.tflite", model("ABS"))
        archive.writestr("bad.tflite", model("mystery"))
    assert main(["inspect", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "good.tflite:"
    assert "bad.tflite:" in lines
    assert main(["inspect", str(path), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [said[name]["opset"] for name in ("good.tflite", "bad.tflite")] == [17, None]


def test_lines_show_signatures_and_number_of_scales(tmp_path: Path, capsys: Captured) -> None:
    """The lines list names of signatures, and the number of scales along an axis."""
    m = Build()
    scales: dict[str, Any] = {"dtype": "int8", "scale": np.full(3, 0.5, np.float32), "axis": 1}
    x = m.input([2, 3], name="x", **scales)
    shape = m.constant(np.array([2, 3], np.int32))
    (y,) = m.op("RESHAPE", [x, shape], [m.tensor([2, 3], **scales)])
    m.output(y)
    m.signature("main", {"given": x}, {"made": y})
    run_inspect(tmp_path, m.bytes())
    said = capsys.readouterr().out
    assert "signature main(given) -> made" in said
    assert "3 scales along axis 1" in said
