"""passes/stored_numbers/change_io_types.py: the types of inputs and outputs, and what users see."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.graph_text import assert_rewritten, make_model, parse_graph
from tflite2onnx import ConversionError, convert
from tflite2onnx.cli import main
from tflite2onnx.passes.stored_numbers.change_io_types import change_io_types
from tflite2onnx.verification import verify

FLOAT_ENDS = """
    inputs x: float32[1,9]
    a: int8(0.02, 3)[1,9] = QUANTIZE(x)
    b: int8(0.02, -4)[1,9] = ABS(a)
    y: float32[1,9] = DEQUANTIZE(b)
    return y
"""
INT8_ENDS = """
    inputs x: int8(0.02, 3)[1,9]
    y: int8(0.02, -4)[1,9] = ABS(x)
    return y
"""
UINT8_ENDS = """
    inputs x: uint8(0.02, 131)[1,9]
    a: int8(0.02, 3)[1,9] = QUANTIZE(x)
    b: int8(0.02, -4)[1,9] = ABS(a)
    y: uint8(0.02, 124)[1,9] = QUANTIZE(b)
    return y
"""
ENDS = {"float": FLOAT_ENDS, "int8": INT8_ENDS, "uint8": UINT8_ENDS}
# Real numbers inside, integers that are outputs, and an input that is not quantized.
MIXED = """
    inputs x: float32[2], n: int32[2]
    a: int8(0.5, 3)[2] = QUANTIZE(x)
    r: float32[2] = SQRT(x)
    m: int32[2] = ABS(n)
    return a, r, m
"""


@pytest.mark.parametrize("after", ENDS)
@pytest.mark.parametrize("before", ["float", "int8"])
def test_ends_change_between_float_and_integers(before: str, after: str) -> None:
    assert_rewritten(partial(change_io_types, chosen=after), ENDS[before], ENDS[after])


def test_one_end_changes_by_name() -> None:
    assert_rewritten(
        partial(change_io_types, chosen={"x": "float"}),
        INT8_ENDS,
        """
        inputs x: float32[1,9]
        a: int8(0.02, 3)[1,9] = QUANTIZE(x)
        y: int8(0.02, -4)[1,9] = ABS(a)
        return y
        """,
    )


def test_real_numbers_are_computed_for_remaining_readers() -> None:
    """The real numbers are computed where they are needed, and an output keeps its name."""
    assert_rewritten(
        partial(change_io_types, chosen={"x": "int8"}),
        MIXED,
        """
        inputs x: int8(0.5, 3)[2], n: int32[2]
        real: float32[2] = DEQUANTIZE(x)
        a: int8(0.5, 3)[2] = QUANTIZE(x)
        r: float32[2] = SQRT(real)
        m: int32[2] = ABS(n)
        return a, r, m
        """,
    )
    # The operand of DEQUANTIZE is an input or a constant, which keeps its name.
    for kind in ("inputs x: int8(0.5, 3)[2]", "inputs"):
        operand = "x" if kind != "inputs" else "int8(0.5, 3)[2]"
        assert_rewritten(
            partial(change_io_types, chosen={"y": "int8"}),
            f"{kind}\ny: float32[2] = DEQUANTIZE({operand})\nreturn y",
            f"{kind}\ny: int8(0.5, 3)[2] = QUANTIZE({operand})\nreturn y",
        )


def test_tensor_that_is_both_ends_gets_both_types() -> None:
    graph = change_io_types(parse_graph("inputs x: int8(0.5, 3)[2]\nreturn x"), "float")
    assert [t.dtype.label for t in (*graph.inputs, *graph.outputs)] == ["float32", "int8"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"z": "int8"}, "`io_type`: the model has no input or output z"),
        ({"n": "int8"}, "`io_type` of n must not be given, because the tensor is neither float32"),
        (
            {"r": "int8"},
            "`io_type` of r must not be int8, because no DEQUANTIZE has a scale for it",
        ),
    ],
)
def test_refuses_ends_that_cannot_change(chosen: dict[str, str], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        change_io_types(parse_graph(MIXED), chosen)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y: float32[2] = ABS(x)", "x must not be uint8, because no QUANTIZE has a scale for it"),
        ("y: int16(0.5, 0)[2] = QUANTIZE(x)", "x must not be uint8, because the network .* int16"),
    ],
)
def test_refuses_uint8_for_inputs_without_8_bits(text: str, message: str) -> None:
    graph = parse_graph(f"inputs x: float32[2]\n{text}\nreturn y")
    with pytest.raises(ConversionError, match=message):
        change_io_types(graph, "uint8")


@pytest.mark.parametrize("after", ENDS)
@pytest.mark.parametrize("before", ENDS)
def test_numbers_equal_litert_for_each_type(before: str, after: Any, tmp_path: Path) -> None:
    """LiteRT and ONNX Runtime agree; the metadata suffice to verify a file."""
    path, model = tmp_path / "model.onnx", make_model(ENDS[before])
    result = convert(model, path, io_type=after)
    wanted = "float32" if after == "float" else after
    assert {end.dtype for end in (*result.inputs, *result.outputs)} == {wanted}
    assert [end.name for end in (*result.inputs, *result.outputs)] == ["x", "y"]
    zero = {"float": None, "int8": 3, "uint8": 131}[after]
    assert result.inputs[0].zero_point == zero
    for converted in (result, path):
        report = verify(model, converted)
        assert report.ok
        assert report.outputs[0].largest < 1e-6
    described = json.loads(result.model.metadata_props[0].value)[0]
    assert described.get("zero_point") == zero
    assert described.get("scale", 0) == pytest.approx(0 if after == "float" else 0.02)


def test_no_nodes_convert_between_int8_and_uint8() -> None:
    """Activations are stored as uint8: uint8 inputs and outputs need no node, int8 ones a pair."""
    nodes = [
        node.op_type for node in convert(make_model(INT8_ENDS), io_type="uint8").model.graph.node
    ]
    assert nodes == ["DequantizeLinear", "Abs", "QuantizeLinear"]
    assert convert(make_model(INT8_ENDS)).nodes == len(nodes) + 4


def test_given_numbers_are_rounded() -> None:
    """Real numbers for an integer input are rounded for both models."""
    given = np.linspace(-9, 9, 9, dtype=np.float32).reshape(1, 9) + np.float32(0.0099)
    model = make_model(FLOAT_ENDS)
    report = verify(model, convert(model, io_type="uint8"), inputs={"x": given})
    assert [d.largest for d in report.outputs] == [0]


def test_command_line_chooses_types_of_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = tmp_path / "model.tflite", tmp_path / "model.onnx"
    model.write_bytes(make_model(FLOAT_ENDS))
    types = ["--io-type", "x=uint8", "--io-type", "y=int8", "--verify"]
    assert main([str(model), str(path), *types]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("scale 0.0199999996, zero point 131")
    assert lines[1].endswith("scale 0.0199999996, zero point -4")
    assert onnx.load(path).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert main(["verify", str(model), str(path)]) == 0
    assert main([str(model), str(path), "--io-type", "int8"]) == 0
    assert onnx.load(path).graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.INT8
    assert main([str(model), "-o", str(tmp_path / "all"), "--io-type", "int8"]) == 0


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["--io-type", "int4"], "--io-type must be float, int8 or uint8, got int4"),
        (["--io-type", "x=int4"], "--io-type must be float, int8 or uint8, got int4"),
        (
            ["--io-type", "int8", "--io-type", "x=uint8"],
            "--io-type must be one TYPE for all, or NAME=TYPE",
        ),
        (
            ["--io-type", "int8", "--quantization", "float"],
            "--io-type must be float with --quantization float",
        ),
    ],
)
def test_refuses_invalid_types_on_the_command_line(
    types: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(make_model(FLOAT_ENDS))
    assert main([str(model), str(tmp_path / "model.onnx"), *types]) == 1
    assert message in capsys.readouterr().err


def test_refuses_named_types_for_several_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        (tmp_path / f"{name}.tflite").write_bytes(make_model(FLOAT_ENDS))
    assert main([str(tmp_path), "-o", str(tmp_path / "out"), "--io-type", "x=int8"]) == 1
    assert "--io-type with a name must be given for one model" in capsys.readouterr().err
