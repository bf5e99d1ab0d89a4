"""Letters of axes: axes have letters if a name for them is known, else numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.small import build_flattening, chain, convolve, network
from tflite2onnx import convert
from tflite2onnx.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from tflite2onnx import Result

Captured = pytest.CaptureFixture[str]


def layouts(result: Result) -> list[tuple[str, str]]:
    """Return the layouts of all inputs and outputs."""
    return [end.layout for end in (*result.inputs, *result.outputs)]


def build_reshape(*shape: int) -> bytes:
    """Return "x" of the shape -> RESHAPE -> CONV_2D."""
    m = Build()
    size = m.constant(np.array([2, 5, 7, 3], np.int32))
    (image,) = m.op("RESHAPE", [m.input(shape, name="x"), size], [m.tensor((2, 5, 7, 3))])
    m.output(convolve(m, image, 4, "y"))
    return m.bytes()


@pytest.mark.parametrize(
    ("model", "options", "want"),
    [
        (network(), {}, [("NHWC", "NCHW"), ("NHWC", "NCHW")]),
        (network(), {"io_layout": "tflite"}, [("NHWC", "NHWC"), ("NHWC", "NHWC")]),
        (build_flattening(), {}, [("NHWC", "NCHW"), ("NHWC", "NHWC"), ("01", "01")]),
        (chain("ABS", shape=(2, 3, 5, 7)), {}, [("0123", "0123")] * 2),
        (chain("ABS"), {"layouts": {"x": ("TFC", "CTF")}}, [("TFC", "CTF"), ("TFC",) * 2]),
        (chain("ABS"), {"layouts": {"y": ("ABC", "ABC")}}, [("ABC", "ABC")] * 2),
        (
            chain("ABS"),
            {"layouts": {"y": ("ABC", "ABC"), "x": ("abc", "abc")}},
            [("abc", "abc"), ("ABC", "ABC")],
        ),
        (network(), {"layouts": {"x": ("BYXc", "BcYX")}}, [("BYXc", "BcYX"), ("NHWC", "NCHW")]),
        (
            build_reshape(2, 5, 1, 7, 3),
            {"io_layout": "tflite"},
            [("01234", "01234"), ("NHWC",) * 2],
        ),
        (build_reshape(2, 35, 3), {"io_layout": "tflite"}, [("012", "012"), ("NHWC", "NHWC")]),
        (build_reshape(2, 105), {"io_layout": "tflite"}, [("01", "01"), ("NHWC", "NHWC")]),
        (chain("ABS", shape=()), {}, [("", "")] * 2),
    ],
)
def test_equal_axes_share_letters(model: bytes, options: Any, want: list[tuple[str, str]]) -> None:
    """Tensors with the same axes have the same letters; merged axes have numbers."""
    assert layouts(convert(model, **options)) == want


# The command line


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a model and mappings to the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(network())
    (tmp_path / "x.json").write_text('{"x": ["NHWC", "NHWC"]}')
    (tmp_path / "a=b.json").write_text('{"x": ["ABCD", "ABCD"]}')


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["x=NCHW"], ["NHWC", "NCHW", "NHWC", "NCHW"]),
        (["x=NHWC"], ["NHWC", "NHWC", "NHWC", "NCHW"]),
        (["x=CNHW"], ["NHWC", "CNHW", "NHWC", "NCHW"]),
        (["x=BYXc:BcYX"], ["BYXc", "BcYX", "NHWC", "NCHW"]),
        (["x.json", "y=NCWH"], ["NHWC", "NHWC", "NWHC", "NCWH"]),
        (["a=b.json"], ["ABCD", "ABCD", "NHWC", "NCHW"]),
    ],
)
def test_layouts_are_read_and_printed(capsys: Captured, words: list[str], want: list[str]) -> None:
    """Layouts are given by name or in a file, and are printed."""
    assert main(["model.tflite", *(f"--layout={word}" for word in words)]) == 0
    ends = [line.split("]") for line in capsys.readouterr().out.splitlines()[:2]]
    assert [part.split()[0] for _, *parts in ends for part in parts] == want


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x=NHW"], "layout of x: NHW must have one C, which is last in TFLite, or be given"),
        (["x=CCHW"], "layout of x: CCHW must have one C"),
        (["x=NHWC:NCH"], "layout of x: NHWC and NCH must have the same letters, each once"),
        (["x=NCW"], "layout of x: NWC and NCW must have a letter for each of the"),
        (["z=NCHW"], "--layout: the model has no tensor z"),
        (["hiden=NCHW"], "--layout: the model has no tensor hiden; did you mean hidden?"),
        (["x=NCHW", "x.json"], "the layout of x must be given once"),
        (["x="], "--layout must be NAME=NCHW, NAME=NHWC:NCHW or a JSON file, got x="),
        (["x=NHWC:"], "--layout must be NAME=NCHW, NAME=NHWC:NCHW or a JSON file, got x=NHWC:"),
        (["none.json"], "cannot read none.json: No such file or directory"),
    ],
)
def test_wrong_layouts_are_one_line_of_error(
    capsys: Captured, tmp_path: Path, words: list[str], message: str
) -> None:
    """The error is one line, and nothing is written."""
    assert main(["model.tflite", *(f"--layout={word}" for word in words)]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "model.onnx").exists()
