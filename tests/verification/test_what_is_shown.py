"""What a verification shows: outputs that are constant or NaN, wider limits, other inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.small import chain
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError, VerifyError
from tflite2onnx.verification import Verdict
from tflite2onnx.verification.inputs import RandomKind, draw_inputs
from tflite2onnx.verification.runtimes import open_interpreter

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty directory."""
    monkeypatch.chdir(tmp_path)


def compare_with(code: str, bound: float, shape: tuple[int, ...] = (2, 3)) -> bytes:
    """Return "x" -> code(x, bound) -> "y"."""
    m = Build()
    x = m.input(shape, name="x")
    y = m.tensor(shape, name="y")
    m.output(*m.op(code, [x, m.constant(np.float32(bound))], [y]))
    return m.bytes()


# Outputs that show nothing


@pytest.mark.parametrize(
    ("code", "bound", "numbers"),
    [("MINIMUM", -1e30, "every element is -1e+30"), ("MUL", np.nan, "no element is finite")],
)
def test_constant_output_is_not_called_right(
    code: str, bound: float, numbers: str, capsys: Captured
) -> None:
    """An output that is the same number for all inputs is not called right."""
    Path("model.tflite").write_bytes(compare_with(code, bound))
    assert main(["verify", "model.tflite", "--report", "page.html"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].endswith("nothing shown")
    assert f"warning: output y: {numbers}, which shows nothing; verify on" in err
    assert "UNPROVEN." in Path("page.html").read_text("utf-8")
    assert main(["model.tflite", "--verify", "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["models"]
    assert told["verification"]["outputs"][0]["verdict"] == "nothing shown"


def test_equal_elements_in_two_samples_show_nothing() -> None:
    """An output shows nothing if its elements are equal in two samples."""
    data = compare_with("MAXIMUM", 1e30, (1,))
    assert verify(data, samples=1).judged_outputs[0][1] is Verdict.RIGHT
    assert verify(data, samples=2).judged_outputs[0][1] is Verdict.NOTHING_SHOWN


@pytest.mark.parametrize(("bound", "kind"), [(0, ""), (50, " (0 to 255)")])
def test_other_inputs_are_tried_if_the_output_is_constant(bound: float, kind: str) -> None:
    """If the output is constant for one kind of random numbers, another kind is used."""
    report = verify(compare_with("MAXIMUM", bound))
    assert report.sample_names == (f"seed 0{kind}", f"seed 1{kind}")
    assert not report.nothing_shown


def test_no_other_inputs_are_tried_if_all_are_given() -> None:
    """If the user gives all inputs, no random inputs are tried."""
    x = np.zeros((2, 3), np.float32)
    report = verify(compare_with("MAXIMUM", 50), inputs={"x": x})
    assert [output.level for output in report.nothing_shown] == [50]


def test_inputs_are_small_for_networks_that_overflow() -> None:
    """Inputs are small if larger inputs overflow; LiteRT's largest float counts as an infinity."""
    large = compare_with("MUL", 3e38)
    x = np.array([[-5, 1, 5], [2, -3, 0]], np.float32)
    assert verify(large, inputs={"x": x}).ok
    m = Build()
    x1 = m.input((2, 300), name="x")
    (y,) = m.op("MUL", [x1, m.constant(np.float32(3e38))], [(2, 300)])
    (z,) = m.op("SUB", [y, m.op("MUL", [y, m.constant(np.float32(3))], [(2, 300)])[0]], [(2, 300)])
    m.output(z)
    assert verify(m.bytes()).ok


@pytest.mark.parametrize("dtype", ["float32", "int8", "int32"])
def test_smooth_inputs_have_equal_neighbours(dtype: str) -> None:
    """Neighbours along the inner axes are equal, as in a picture."""
    m = Build()
    scale: dict[str, Any] = {"scale": 0.1, "zero_point": 0} if dtype == "int8" else {}
    x = m.input((1, 10, 12, 3), dtype=dtype, **scale)
    m.output(*m.op("ABS", [x], [x.shape]))
    (array,) = draw_inputs(open_interpreter(m.bytes()), 0, {}, RandomKind.SMOOTH)
    assert array.shape == x.shape
    assert array.dtype == dtype
    assert (array[:, :8, :8] == array[:, :1, :1]).all()
    assert len(np.unique(array)) > 1


# Limits


def test_result_within_a_wider_limit_only_is_called_close(capsys: Captured) -> None:
    """A result that only a wider limit accepts is called close, and the limit is given."""
    model = str(Path(__file__).parents[2] / "assets/models/mobilenet_int16x8.tflite")
    words = ["verify", model, "--report", "page.html", "--json"]
    assert main(words) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert output["verdict"] == "close"
    assert output["bound"].startswith("the signal-to-noise ratio is at least ")
    assert output["largest"] > output["allowed"]
    assert "CLOSE." in Path("page.html").read_text("utf-8")
    assert main(words[:2]) == 0
    assert f"is close: {output['bound']}" in capsys.readouterr().out


def test_output_equal_to_the_default_kernels_is_called_equal(capsys: Captured) -> None:
    """The plain kernels round twice; the result names the default kernels, which are equal."""
    model = str(Path(__file__).parents[2] / "assets/models/mobilenet_int8.tflite")
    assert main(["verify", model]) == 0
    out = capsys.readouterr().out
    assert "_1:0  equal  right\n" in out
    assert "is equal to LiteRT's default kernels (XNNPACK), bit for bit" in out
    assert main(["verify", model, "--json"]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["verdict"], output["largest"]) == ("right", 0)
    assert output["kernels"] == "default kernels (XNNPACK)"
    assert output["comparison"] == "equal to LiteRT's default kernels (XNNPACK), bit for bit"


def test_right_output_has_its_limit_in_json(capsys: Captured) -> None:
    """A right output has its limit in JSON; a failing one has none."""
    Path("model.tflite").write_bytes(chain("EXP"))
    assert main(["verify", "model.tflite", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outputs"][0]["bound"].startswith("the difference is at most ")
    assert told["right_unoptimized"] is None
    wrong = convert("model.tflite").model
    wrong.graph.node[0].op_type = "Tanh"
    report = verify("model.tflite", wrong)
    assert report.outputs[0].bound == ""
    assert report.right_unoptimized is False


# Text


def split_text() -> bytes:
    """Return "words" -> RESHAPE -> "list"."""
    m = Build()
    words = m.input([2, 2], dtype="string", name="words")
    shape = m.constant(np.array([4], np.int32))
    m.output(*m.op("RESHAPE", [words, shape], [m.tensor([4], dtype="string", name="list")]))
    return m.bytes()


@pytest.mark.parametrize("dtype", ["S", "U", object])
def test_strings_of_any_width_reach_both_runtimes_whole(dtype: Any) -> None:
    """Bytes and str of any width reach both runtimes whole."""
    words = np.array([["a", "bcd"], ["", "a longer word"]]).astype(dtype)
    report = verify(split_text(), inputs={"words": words})
    assert report.ok
    wrong = convert(split_text()).model
    wrong.graph.node[0].op_type = "Identity"
    del wrong.graph.node[0].input[1:]
    assert not verify(split_text(), wrong, inputs={"words": words}).ok


def test_string_files_are_read_and_number_files_refused(capsys: Captured) -> None:
    """Files of text are read; numbers in place of text are refused."""
    Path("model.tflite").write_bytes(split_text())
    np.save("words.npy", np.array([["a", "bcd"], ["", "word"]]))
    np.save("numbers.npy", np.zeros((2, 2)))
    assert main(["verify", "model.tflite", "--input", "words=words.npy"]) == 0
    assert main(["verify", "model.tflite", "--input", "words=numbers.npy"]) == 1
    expected = "input words must be string[2, 2] or a batch of it, got float64[2, 2]"
    assert expected in capsys.readouterr().err


# Names of inputs, sizes, other files


def build_named() -> bytes:
    """Return a model whose input is x in the graph and "image" in the signature."""
    m = Build()
    x = m.input((2, 3), name="x")
    (y,) = m.op("ABS", [x], [m.tensor((2, 3), name="y")])
    m.output(y)
    m.signature("main", {"image": x}, {"result": y})
    return m.bytes()


@pytest.mark.parametrize("name", ["x", "image", "new"])
def test_inputs_can_be_given_by_each_of_their_names(name: str) -> None:
    """Arrays are given by the name in the graph, in the signature, or in the ONNX model."""
    Path("model.tflite").write_bytes(build_named())
    np.save("x.npy", np.full((2, 3), -2, np.float32))
    words = ["model.tflite", "--names", "signature", "--rename", "image=new"]
    assert main([*words, "--verify", "--input", f"{name}=x.npy"]) == 0
    assert main(["verify", "model.tflite", "model.onnx", "--input", f"{name}=x.npy"]) == 0


def test_input_given_by_two_names_is_refused() -> None:
    """An input cannot be given twice by different names."""
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(OptionError, match="x must be given once, got the name image for it, too"):
        verify(build_named(), inputs={"x": x, "image": x})


def test_smaller_sizes_are_verified_if_file_sizes_are_too_large() -> None:
    """A model whose sizes in the file need too much memory is verified at smaller sizes."""
    m = Build()
    huge = (1 << 20, 1 << 20)
    x = m.input(huge, name="x")
    m.output(*m.op("ABS", [x], [m.tensor(huge, name="y")]))
    Path("model.tflite").write_bytes(m.bytes())
    assert main(["model.tflite", "--shape", "x=2,3", "--verify"]) == 0


def test_onnx_model_of_another_model_is_refused_in_one_line(capsys: Captured) -> None:
    """The only message is one line."""
    Path("model.tflite").write_bytes(chain("ABS"))
    Path("other.tflite").write_bytes(chain("ABS", shape=(7,)))
    assert main(["-q", "other.tflite"]) == 0
    assert main(["verify", "model.tflite", "other.onnx"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "must be converted from this TFLite model" in err
    with pytest.raises(VerifyError, match="must be converted from this TFLite model"):
        verify("model.tflite", "other.onnx")
