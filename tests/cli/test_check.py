"""`tflite2onnx check`: models that keep and that break each kind of rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.golden.records import assets
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.targets.table import TARGETS, find_rules, has_part

Captured = pytest.CaptureFixture[str]
F32, I8, U8 = TensorProto.FLOAT, TensorProto.INT8, TensorProto.UINT8


def model_of(
    *nodes: onnx.NodeProto,
    constants: dict[str, np.ndarray] | None = None,
    x: tuple[int, tuple[int | str, ...]] = (F32, (1, 4, 4, 4)),
    opset: int = 19,
) -> onnx.ModelProto:
    """Return a model from "x" to "y"."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", F32, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    domains = {node.domain for node in nodes} - {""}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def quantize(zero_point: np.generic, *, scales: int = 1, **attributes: Any) -> onnx.ModelProto:
    """Return QuantizeLinear and DequantizeLinear."""
    scale = np.full([scales] if scales > 1 else [], 0.5, np.float32)
    zero = np.full(scale.shape, zero_point)
    return model_of(
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize", **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], "dequantize", **attributes),
        constants={"s": scale, "z": zero},
    )


def convolve(data: np.generic, weights: np.generic, **attributes: Any) -> onnx.ModelProto:
    """Return Conv of dequantized data and weights, with several scales if `axis` is given."""
    scale = np.ones([4] if attributes else [], np.float32)
    return model_of(
        helper.make_node("QuantizeLinear", ["x", "one", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["k", "s"], ["w"], "weights", **attributes),
        helper.make_node("Conv", ["d", "w"], ["y"], "conv"),
        constants={
            "one": np.array(1, np.float32),
            "z": np.array(data),
            "k": np.full((4, 4, 1, 1), weights),
            "s": scale,
        },
    )


def node(operator: str, **attributes: Any) -> onnx.ModelProto:
    return model_of(helper.make_node(operator, ["x"], ["y"], "node", **attributes))


def computed_weights() -> onnx.ModelProto:
    return model_of(
        helper.make_node("Relu", ["x"], ["w"]), helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    )


def constant_zero(value: int) -> onnx.ModelProto:
    """Return a QuantizeLinear whose zero point is a Constant node, inside of an If."""
    zero = numpy_helper.from_array(np.array(value, np.int8))
    body = helper.make_graph(
        [
            helper.make_node("Constant", [], ["z"], value=zero),
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        ],
        "body",
        [],
        [helper.make_tensor_value_info("r", F32, None)],
    )
    return model_of(
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        constants={"c": np.array(True), "s": np.array(1, np.float32)},
    )


def with_default() -> onnx.ModelProto:
    model = node("Relu")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 4, 4, 4), np.float32), "x"))
    return model


def with_function() -> onnx.ModelProto:
    """Return a model whose only node calls a function of the model, which has a NonZero."""
    model = node("Twice", domain="ours")
    body = [helper.make_node("NonZero", ["x"], ["y"], "inner")]
    opsets = [helper.make_opsetid("", 19)]
    model.functions.append(helper.make_function("ours", "Twice", ["x"], ["y"], body, opsets))
    return model


def outside() -> onnx.ModelProto:
    """Return a model whose zero point is in a file that is missing."""
    model = quantize(np.int8(3))
    tensor = next(t for t in model.graph.initializer if t.name == "z")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="missing.data")
    return model


KEPT: list[tuple[str, Callable[[], onnx.ModelProto]]] = [
    ("tensorrt", lambda: node("Relu")),
    ("tensorrt", lambda: quantize(np.int8(0))),
    ("tensorrt", lambda: convolve(np.int8(0), np.int8(1), axis=0)),
    ("tensorrt", lambda: constant_zero(0)),
    ("tensorrt", outside),
    ("qnn", lambda: node("Relu")),
    ("coreml", lambda: node("Relu")),
    ("nnapi", lambda: convolve(np.uint8(3), np.int8(1), axis=0)),
    ("rknn", lambda: quantize(np.int8(3))),
    ("hailo", lambda: node("Relu")),
    ("openvino", lambda: convolve(np.uint8(3), np.int8(1))),
    ("opencv", lambda: convolve(np.int8(3), np.uint8(1))),
    ("tvm", lambda: node("Relu")),
    ("web", lambda: node("Relu")),
    ("web", lambda: node("Mystery", domain="ours")),
    ("tensorrt", with_function),
]
BROKEN: list[tuple[str, Callable[[], onnx.ModelProto], str]] = [
    (
        "rknn",
        lambda: model_of(helper.make_node("Relu", ["x"], ["y"]), opset=21),
        "opset model: opset must be 1 to 19, got 21; the runtime does not load the model; ",
    ),
    ("qnn", lambda: quantize(np.uint8(3)), "input x: type must be an integer type, got float32"),
    ("qnn", lambda: node("NonZero"), "operator must be one that the runtime has, got NonZero"),
    ("qnn", lambda: node("Relu", domain="ours"), "runtime has, got ours.Relu"),
    ("qnn", with_function, "operator must be one that the runtime has, got NonZero"),
    ("tensorrt", lambda: node("SequenceAt"), "the runtime has, got SequenceAt"),
    ("tvm", lambda: node("LSTM"), "LSTM node: operator must be one that the runtime has"),
    ("tensorrt", lambda: quantize(np.int8(-3)), "quantize: zero point must be 0, got -3"),
    ("tensorrt", lambda: constant_zero(5), "zero point must be 0, got 5"),
    ("nnapi", lambda: quantize(np.int16(0)), "type of quantized tensors must be uint8 or int8"),
    (
        "tensorrt",
        lambda: convolve(np.int8(0), np.uint8(0)),
        "type of constants must be int8, int4 or int32, got uint8",
    ),
    (
        "tensorrt",
        lambda: quantize(np.int8(0), scales=4, axis=1),
        "quantize: scale of data must be one number, got one for each channel",
    ),
    (
        "nnapi",
        lambda: convolve(np.uint8(0), np.int8(1), axis=1),
        "DequantizeLinear weights: axis of scales must be 0, got 1",
    ),
    (
        "qnn",
        lambda: model_of(helper.make_node("Relu", ["x"], ["y"]), x=(F32, ("batch", 4))),
        "input x: sizes must be numbers, got a dynamic size",
    ),
    (
        "openvino",
        lambda: model_of(
            helper.make_node("Cast", ["x"], ["y"], to=F32), x=(TensorProto.INT16, (4,))
        ),
        "input x: type must be",
    ),
    (
        "openvino",
        lambda: model_of(
            helper.make_node("Cast", ["x"], ["y"], to=F32), x=(TensorProto.STRING, (4,))
        ),
        "type must not be string, got string",
    ),
    (
        "web",
        lambda: model_of(helper.make_node("Relu", ["x"], ["y"]), opset=27),
        "got 27; the runtime does not load the model; convert with --opset 26",
    ),
    ("web", with_default, "input x: input must have no initial value, got one"),
    ("nnapi", computed_weights, "Conv conv: input 1 must be a constant, got a computed tensor"),
    (
        "openvino",
        lambda: convolve(np.int8(0), np.int8(1)),
        "type of input 0 before DequantizeLinear must be uint8, int16 or uint16, got int8",
    ),
    ("hailo", lambda: quantize(np.int8(0)), "convert with --quantization float"),
]


@pytest.mark.parametrize(("target", "build"), KEPT)
def test_model_that_keeps_all_rules_has_exit_status_0(
    target: str, build: Callable[[], onnx.ModelProto], tmp_path: Path, capsys: Captured
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(build().SerializeToString())
    assert main(["check", str(path), "--target", target]) == 0
    assert capsys.readouterr().out == f"PASSED: {path} breaks no rule of {target}\n"
    assert main(["check", "-q", str(path), "--target", target]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("target", "build", "line"), BROKEN)
def test_model_that_breaks_rules_has_exit_status_1(
    target: str,
    build: Callable[[], onnx.ModelProto],
    line: str,
    tmp_path: Path,
    capsys: Captured,
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(build().SerializeToString())
    assert main(["check", str(path), "--target", target]) == 1
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert line in "\n".join(lines)
    assert verdict.startswith(f"FAILED: {path} breaks {len(lines)} rule")


def test_nodes_that_break_a_rule_alike_are_one_line(tmp_path: Path, capsys: Captured) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
        a = Erf(x) b = Erf(a) c = Erf(b) d = Erf(c) y = Erf(d) }"""
    )
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    for words, places in (
        ([], "Erf a, Erf b, Erf c and 2 more: "),
        (["--wide"], "Erf a, Erf b, Erf c, Erf d, Erf y: "),
    ):
        assert main(["check", str(path), "--target", "nnapi", *words]) == 1
        line, verdict = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{places}operator must be one that the runtime has, got Erf;")
        assert verdict == f"FAILED: {path} breaks 1 rule of nnapi"


def test_long_names_in_a_line_are_shortened(tmp_path: Path, capsys: Captured) -> None:
    """The name of a scale of several channels is in the line itself."""
    path = tmp_path / "m.onnx"
    model = convert("assets/models/mobilenet_int8.tflite").model
    path.write_bytes(model.SerializeToString())
    for words, found in (([], False), (["--wide"], True)):
        assert main(["check", str(path), "--target", "qnn", *words]) == 1
        *lines, _ = capsys.readouterr().out.splitlines()
        assert (max(map(len, " ".join(lines).split())) > 60) == found


def test_json_has_the_sources(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(quantize(np.int8(7)).SerializeToString())
    assert main(["check", str(path), "--target", "tensorrt", "--json"]) == 1
    first, _ = json.loads(capsys.readouterr().out)
    assert first["place"] == "quantize"
    assert first["source"].startswith("https://github.com/onnx/onnx-tensorrt")


def test_refuses_a_file_that_is_no_onnx_model(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "m.onnx"
    words = ["check", str(path), "--target", "qnn"]
    assert main(words) == 1
    assert "cannot read the file" in capsys.readouterr().err
    for content in (b"\xff" * 30, b""):
        path.write_bytes(content)
        assert main(words) == 1
        assert "the file must be an ONNX model" in capsys.readouterr().err


def test_every_table_is_of_a_target_and_has_sources() -> None:
    for target in (target for target in TARGETS if has_part(target, "rules")):
        assert find_rules(target)
        assert all(rule.source and rule.consequence for rule in find_rules(target))
    assert not find_rules("onnxruntime")


def test_conversion_warns_of_broken_rules(caplog: pytest.LogCaptureFixture) -> None:
    """The options of a target keep its rules; other options of the user may break them."""
    (case,) = [each for each in assets() if each.path.name == "mobilenet_int8.tflite"]
    convert(case.path, target="tensorrt")
    assert "broken rule" not in caplog.text
    convert(case.path, target="rknn", opset=25)
    assert "of the target rknn: opset model: opset must be 1 to 19, got 25" in caplog.text


def test_conversion_says_each_consequence_once(caplog: pytest.LogCaptureFixture) -> None:
    (case,) = [each for each in assets() if each.path.name == "mobilenet_int8.tflite"]
    convert(case.path, target="openvino", activations="int8", weights="uint8")
    first, second = [r.getMessage() for r in caplog.records if "broken rules" in r.getMessage()]
    assert "processors with bfloat16 do not load the model" in first
    assert "the numbers are wrong" in second
