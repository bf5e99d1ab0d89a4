"""`tflite2onnx verify`: what it prints, its exit status, and pictures as inputs."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.support import Build
from tests.support.small import chain, convolve, network
from tests.test_bundle import archive
from tests.verification.test_inner_tensors import build_deep, damage_model, find_node, wrong_pad
from tests.verification.test_latency import TIME
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.cli.verdict import list_outputs, list_tensors, print_conclusion
from tflite2onnx.errors import VerifyError
from tflite2onnx.reader.metadata import ModelMetadata, TensorMetadata
from tflite2onnx.utils.console import print_lines
from tflite2onnx.verification import Difference, Report, TensorComparison, images
from tflite2onnx.verification.images import ImageInput, find_image_input
from tflite2onnx.verification.runtimes import open_interpreter

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a file to verify in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(build_deep())
    return "model.tflite"


def expect_complaint(captured: Captured, words: list[str]) -> str:
    """Run a failing command; return its output on stderr, which is all that it prints."""
    assert main(["verify", *words]) == 1
    out, err = captured.readouterr()
    assert out == ""
    return err


def test_right_conversion_is_compared_and_not_written(model: str, capsys: Captured) -> None:
    """The model is converted for the comparison and not written."""
    assert main(["verify", model, "--per-operator", "--samples", "3"]) == 0
    out, err = capsys.readouterr()
    head, output, processor, *counts, time, conclusion = out.splitlines()
    ran = r"LiteRT \(plain kernels, no delegate\) and ONNX Runtime on 3 samples"
    assert re.fullmatch(ran + r"( \(the worst: seed [012]\))?:", head)
    assert output.startswith("soft  largest difference ")
    assert output.endswith(" dB  right")
    assert processor.startswith("instruction sets of this processor: ")
    assert counts == [
        "4 tensors, in order of execution: 4 right, 0 differ, 0 wrong",
        "4 operators, each on LiteRT's own inputs: 0 wrong",
    ]
    assert conclusion == f"PASSED: {model}: every output is right"
    assert re.fullmatch(rf"time: {TIME}", time)
    assert err == ""
    assert [p.name for p in Path().iterdir()] == [model]


@pytest.mark.parametrize(
    ("terminal", "environment", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_conclusion_has_a_colour_on_a_terminal(
    *, terminal: bool, environment: dict[str, str], coloured: bool, model: str
) -> None:
    """The last line is green, unless stdout is no terminal or the user wants no colours."""

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stream = Stream()
    report = verify(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NO_COLOR", raising=False)
        patch.setenv("TERM", "xterm")
        for name, value in environment.items():
            patch.setenv(name, value)
        print_conclusion(stream, model, report)
    text = f"PASSED: {model}: every output is right"
    assert stream.getvalue() == (f"\x1b[32m{text}\x1b[0m\n" if coloured else f"{text}\n")


def test_wrong_conversion_names_the_first_wrong_tensor(model: str, capsys: Captured) -> None:
    """A difference has exit status 2, and the message names the first wrong tensor."""
    onnx.save(damage_model(convert(model), wrong_pad), "wrong.onnx")
    assert main(["verify", model, "wrong.onnx", "--wide"]) == 2
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[1].startswith("soft  largest difference")
    assert lines[1].endswith("differs")  # SOFTMAX itself is right
    assert lines[3] == "4 tensors, in order of execution: 2 right, 1 differ, 1 wrong"
    assert lines[4] == "4 operators, each on LiteRT's own inputs: 1 wrong"
    assert lines[5].startswith("CONV_2D (2)  last  largest difference")
    assert lines[5].endswith("wrong")
    assert lines[6].startswith("SOFTMAX (3)  soft  largest difference")
    assert lines[6].endswith("differs")
    first, last = err.splitlines()
    assert "model.tflite: output soft: its difference must be" in first
    assert last.startswith(
        "tflite2onnx: model.tflite: the first tensor that differs is the output of CONV_2D"
        " (operator 2, last)"
        ": on LiteRT's own inputs its difference must be"
    )
    assert main(["verify", "-q", model, "wrong.onnx"]) == 2
    assert capsys.readouterr() == ("", err)


def test_wrong_tensor_names_the_operators_that_are_compared_with_it(
    model: str, capsys: Captured
) -> None:
    """The form for ONNX Runtime pads the channels, so that one tensor is compared for all."""
    m = Build()
    x = convolve(m, m.input([1, 8, 8, 8]), 7, "first")
    (x,) = m.op("LEAKY_RELU", [x], [x.shape], alpha=0.2)
    m.output(convolve(m, x, 8, "second"))
    Path(model).write_bytes(m.bytes())
    onnx.save(damage_model(convert(model), wrong_alpha), "wrong.onnx")
    assert main(["verify", model, "wrong.onnx"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "tflite2onnx: model.tflite: the cause may also be LEAKY_RELU (operator 1), CONV_2D"
        " (operator 0), whose outputs the ONNX model lacks: a model of --forms canonical may have"
        " them"
    )


def wrong_alpha(model: onnx.ModelProto) -> None:
    """Use another slope for negative numbers."""
    (alpha,) = find_node(model, "LeakyRelu").attribute
    alpha.f = 0.3


def test_long_lists_are_truncated(capsys: Captured) -> None:
    """Long lists are truncated; a difference of types has no number."""
    wrong = Difference("y", "int8", float("inf"), 0, 0, "int8[2] in LiteRT, int8[3] elsewhere")
    tensors = tuple(
        TensorComparison(replace(wrong, name=f"t{i}"), "ABS", i, f"v{i}", (2,), (0,))
        for i in range(12)
    )
    report = Report((wrong,), 1, 0, tensors)
    print_lines(sys.stdout, [*list_outputs(report), *list_tensors(report)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "y  int8[2] in LiteRT, int8[3] elsewhere  differs"
    assert lines[3] == "12 tensors, in order of execution: 0 right, 12 differ, 0 wrong"
    assert lines[4] == "ABS (0)  t0  int8[2] in LiteRT, int8[3] elsewhere  differs"
    assert lines[-1] == "... and 2 more"
    closed = list_tensors(replace(report, closed=("WHILE", "IF", "WHILE")))
    assert closed == [
        *list_tensors(report),
        "tensors inside sub-graphs are not compared, only the results of 2 WHILE, 1 IF",
    ]


def test_models_of_other_converters_are_compared_by_outputs_only(
    model: str, capsys: Captured
) -> None:
    """For a model from another converter only the outputs are compared."""
    result = convert(model)

    def rename_ends(other: onnx.ModelProto) -> None:
        for node in other.graph.node:
            names = {n: f"{n}_" for n in (*node.input, *node.output) if n in {"first", "last"}}
            node.input[:] = [names.get(n, n) for n in node.input]
            node.output[:] = [names.get(n, n) for n in node.output]

    onnx.save(damage_model(result, rename_ends), "other.onnx")
    assert main(["verify", model, "other.onnx"]) == 0
    assert "only the outputs are compared" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.tflite"], "cannot read none.tflite: No such file or directory"),
        (["model.tflite", "none.onnx"], "cannot read none.onnx: No such file or directory"),
        (["model.tflite", "model.tflite"], "the TFLite model must be given first"),
        (["model.tflite", "--report", "model.tflite"], "it is the TFLite model"),
        (["model.tflite", "x.onnx", "--report", "./x.onnx"], "it is the ONNX model"),
        (["model.tflite", "--samples", "0"], "must be a whole number of at least 1, got 0"),
        (["model.tflite", "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
        (["model.tflite", "--input", "x"], "--input must be NAME=FILE, data to verify on, got x"),
        (["model.tflite", "--input", "x=none.npy"], "cannot read none.npy: No such file"),
        (
            ["model.tflite", "--input", "x="],
            "--input must be NAME=FILE, once for each name, got x=",
        ),
        (["model.tflite", "--image", "none.png"], "3 or 4 channels"),
        (
            ["model.tflite", "--tolerance", "0"],
            "tolerance must be a finite number above 0, got 0",
        ),
        (["model.tflite", "--tolerance", "nan"], "a finite number above 0, got nan"),
        (["-", "-"], "only one model can be standard input, got - twice"),
    ],
)
def test_wrong_usage_has_exit_status_1(
    model: str, capsys: Captured, words: list[str], message: str
) -> None:
    """Wrong usage has exit status 1."""
    assert model
    assert message in expect_complaint(capsys, words)


def test_progress_bar_is_on_a_terminal_only(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress bar is shown on a terminal only."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, seen in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["verify", model, "-q"]) == 0
        assert stream.getvalue() == ""
        assert main(["verify", model]) == 0
        assert ("tensors" in stream.getvalue()) == seen
    bare = Terminal()
    monkeypatch.setattr(sys, "stderr", bare)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert main(["verify", model]) == 0
    assert re.search(r"\d of \d+ tensors", bare.getvalue())


# Pictures


def pictures(dtype: str = "float32", channels: int = 3, **kept: Any) -> bytes:
    """Return a model that copies a picture to its output."""
    m = Build()
    m.output(
        *m.op(
            "RESHAPE",
            [
                m.input((1, 5, 7, channels), dtype=dtype, name="x", **kept),
                m.constant(np.array([35 * channels], np.int32)),
            ],
            [m.tensor((35 * channels,), dtype=dtype, name="y", **kept)],
        )
    )
    return m.bytes()


@pytest.mark.parametrize(
    ("data", "scale"),
    [(pictures(), 127.5), (pictures(channels=1), 127.5), (pictures(channels=4), 127.5)],
)
def test_picture_is_resized_to_the_input(tmp_path: Path, data: bytes, scale: float) -> None:
    """A picture is resized and converted to the model's channels, by default from -1 to 1."""
    Image.new("RGB", (31, 37), (255, 0, 51)).save(tmp_path / "one.png")
    target = find_image_input(data, open_interpreter(data).get_input_details())
    array = target.read_array(tmp_path / "one.png")
    shape = (*map(int, target.detail["shape"]),)
    assert (array.shape, array.dtype.name) == (shape, "float32")
    pixel = {1: [82], 3: [255, 0, 51], 4: [255, 0, 51, 255]}[shape[3]]
    np.testing.assert_allclose(array[0, 2, 3] * scale + 127.5, pixel, atol=1)
    report = verify(data, images=[tmp_path / "one.png"] * 3)
    assert (report.ok, report.samples) == (True, 3)


@pytest.mark.parametrize(
    ("dtype", "scale", "zero", "mean", "std", "want"),
    [
        ("float32", None, 0, (), (), [1, -1, -0.6]),
        ("float32", None, 0, (0,), (255,), [1, 0, 0.2]),
        ("float32", None, 0, (55, 0, 1), (1, 1, 2), [200, 0, 25]),
        ("uint8", 0.5, 9, (), (), [255, 0, 51]),
        ("int8", 0.5, 9, (), (), [127, -128, -77]),
        ("uint8", 1 / 128, 128, (127.5,), (127.5,), [255, 0, 51]),
        ("int8", 1 / 255, -128, (0,), (255,), [127, -128, -77]),
        ("int8", 1 / 255, -128, (0,), (10,), [127, -128, 127]),
    ],
)
def test_metadata_normalise_pixels_before_quantization(
    dtype: str, scale: float | None, zero: int, mean: Any, std: Any, want: Any, tmp_path: Path
) -> None:
    """The metadata normalise pixels before quantization; integer inputs take pixels as they are."""
    Image.new("RGB", (7, 5), (255, 0, 51)).save(tmp_path / "one.png")
    kept: dict[str, Any] = {"scale": scale, "zero_point": zero} if scale else {}
    (detail,) = open_interpreter(pictures(dtype, **kept)).get_input_details()
    array = ImageInput("x", detail, mean, std).read_array(tmp_path / "one.png")
    assert array.dtype.name == dtype
    np.testing.assert_allclose(array[0, 0, 0], want, atol=1e-6)


@pytest.mark.parametrize(("mean", "std"), [((1, 2), (1,)), ((1,), (0,))])
def test_refuses_normalisation_for_other_channels(
    monkeypatch: pytest.MonkeyPatch, mean: Any, std: Any
) -> None:
    """Metadata for another number of channels, and a deviation of 0, are errors."""
    said = ModelMetadata("", "", "", "", "", (TensorMetadata("", "", mean=mean, std=std),), (), ())
    monkeypatch.setattr(images, "read_model_metadata", lambda _: said)
    with pytest.raises(VerifyError, match="the metadata of x must have one mean"):
        find_image_input(pictures(), open_interpreter(pictures()).get_input_details())


def test_refuses_unusable_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors: a file that is not a picture, a model without images, and a missing Pillow."""
    path = tmp_path / "one.png"
    path.write_bytes(b"nothing")
    with pytest.raises(VerifyError, match=r"cannot read .*one\.png"):
        verify(pictures(), images=[path])
    with pytest.raises(VerifyError, match=r"the model must have one input for pictures, .* got 0"):
        verify(chain("ABS"), images=[path])
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(VerifyError, match=r"pip install tflite2onnx\[images\]"):
        verify(network(), images=[path])


def test_folder_without_the_files_of_a_bundle_is_refused(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the folder and the files that it must have."""
    monkeypatch.chdir(tmp_path)
    Path("two.task").write_bytes(archive({"c.tflite": chain("COS"), "d.tflite": chain("SIN")}))
    Path("other").mkdir()
    assert main(["verify", "two.task", "other"]) == 1
    error = capsys.readouterr().err
    assert "other must have the ONNX files of two.task, got none of c.onnx, d.onnx" in error
    assert error.count("\n") == 1
