"""Verification on data of the user: files and folders of arrays and pictures, and tolerances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from tests.cli.test_forgiving import run_program
from tests.cli.test_verify import pictures
from tests.support import Build
from tests.support.small import chain
from tests.test_bundle import archive
from tests.verification.test_inner_tensors import build_deep
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.tensor import Array
from tflite2onnx.verification import given_inputs

Captured = pytest.CaptureFixture[str]
SHAPE = (2, 11, 11, 16)  # shape of the input x of model.tflite


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Array:
    """Write models and data to the current directory; return three samples."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(build_deep())
    Path("pictures.tflite").write_bytes(pictures())
    Path("a.task").write_bytes(archive({"a.tflite": chain("ABS")}))
    x = np.random.default_rng(0).uniform(-1, 1, (3, *SHAPE)).astype(np.float32)
    np.save("one.npy", x[0])
    np.save("batch.npy", x.reshape(-1, *SHAPE[1:]))
    np.save("stack.npy", x)
    np.savez("one.npz", x[0])
    np.savez("named.npz", x=x, other=x[0])
    np.savez("several.npz", a=x, b=x)
    for folder in ("arrays", "pictures", "empty"):
        Path(folder).mkdir()
    np.save("arrays/a.npy", x[0])
    np.savez("arrays/b.NPZ", x[1:])
    Path("arrays/b.NPZ.npz").rename("arrays/b.NPZ")
    Path("arrays/readme.txt").write_text("no array")
    for i in range(3):
        Image.new("RGB", (9, 8), (i, 90 * i, 255)).save(f"pictures/{i}.png")
    Path("pictures/labels.txt").write_text("no picture")
    return x


def read_report(capsys: Captured, *words: str) -> dict[str, Any]:
    """Run a successful verification; return the JSON report, which is all that it prints.

    Outputs of the small models may be the same number everywhere; stderr says so of each.
    """
    assert main([*words, "--json"]) == 0
    out, err = capsys.readouterr()
    found: dict[str, Any] = json.loads(out)
    constant = [each for each in found["outputs"] if each["verdict"] == "nothing shown"]
    assert len(err.splitlines()) == err.count("which shows nothing") == len(constant)
    return found


def expect_complaint(capsys: Captured, *words: str) -> str:
    """Run a command that fails and writes nothing; return its only line on stderr."""
    before = sorted(Path().rglob("*"))
    assert main(list(words)) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(Path().rglob("*")) == before
    return err


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("one.npy", ["one.npy"]),
        ("batch.npy", [f"batch.npy[{i}]" for i in range(3)]),
        ("stack.npy", [f"stack.npy[{i}]" for i in range(3)]),
        ("one.npz", ["one.npz"]),
        ("named.npz", [f"named.npz[{i}]" for i in range(3)]),
        ("arrays", ["arrays/a.npy", "arrays/b.NPZ[0]", "arrays/b.NPZ[1]"]),
    ],
)
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_each_sample_of_a_file_is_verified(
    data: Array, capsys: Captured, monkeypatch: pytest.MonkeyPatch, file: str,
    names: list[str], limit: int,
) -> None:  # fmt: skip
    """Each sample of a file or folder is verified; large files are memory-mapped."""
    monkeypatch.setattr(given_inputs, "_LARGE", limit)
    told = read_report(capsys, "verify", "model.tflite", "--input", f"x={file}")
    assert (told["samples"], told["sample_names"]) == (len(names), names)
    want = verify("model.tflite", inputs={"x": data[: len(names)]}).to_dict()
    assert told["outputs"] == want["outputs"]
    assert told["worst"] == names[told["outputs"][0]["sample"]]


def test_worst_sample_is_named(capsys: Captured) -> None:
    """The console and the page name the sample with the largest difference."""
    Path("abs.tflite").write_bytes(chain("ABS"))
    wrong = convert("abs.tflite").model
    wrong.graph.node[0].op_type = "Relu"
    onnx.save(wrong, "wrong.onnx")
    x = np.ones((3, 2, 3, 5), np.float32)
    x[1, 1, 2] = -3
    np.save("x.npy", x)
    words = ["verify", "abs.tflite", "wrong.onnx", "--input", "x=x.npy", "--report", "x.html"]
    assert main(words) == 2
    ran = "LiteRT (plain kernels, no delegate) and ONNX Runtime on 3 samples"
    expected = f"{ran} (the worst: x.npy[1]):"
    assert capsys.readouterr().out.splitlines()[0] == expected
    assert "1 output" in Path("x.html").read_text()
    assert "on 3 samples (the worst: x.npy[1])" in Path("x.html").read_text()
    assert main([*words[:3], "--json", "--input", "x=x.npy"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert (told["worst"], told["outputs"][0]["sample"]) == ("x.npy[1]", 1)


def test_samples_option_takes_fewer_or_repeats(capsys: Captured, data: Array) -> None:
    """--samples takes fewer samples or repeats them; random samples are named by their seed."""
    words = ["verify", "model.tflite", "--input", "x=stack.npy", "--samples"]
    assert read_report(capsys, *words, "2")["sample_names"] == ["stack.npy[0]", "stack.npy[1]"]
    assert read_report(capsys, *words, "4")["sample_names"][3] == "stack.npy[0]"
    told = read_report(capsys, "verify", "model.tflite", "--seed", "7")
    assert told["sample_names"] == ["seed 7", "seed 8"]
    report = verify("model.tflite", inputs={"x": data[0]})
    assert report.sample_names == ("x",)
    assert verify("model.tflite", inputs={"x": data[0].astype(np.float64)}) == report


def test_single_sample_is_repeated_for_each_sample_of_other_inputs(capsys: Captured) -> None:
    """A single sample is combined with each sample of other inputs; other counts are errors."""
    m = Build()
    m.output(*m.op("ADD", [m.input([1, 2], name="a"), m.input([1, 2], name="b")], [[1, 2]]))
    Path("add.tflite").write_bytes(m.bytes())
    for count in (1, 2, 3):
        np.save(f"{count}.npy", np.ones((count, 2), np.float32))
    np.save("row.npy", np.ones(2, np.float32))  # without the axis of the batch
    words = ["verify", "add.tflite", "--input", "a=3.npy", "--input"]
    for one in ("1.npy", "row.npy"):
        told = read_report(capsys, *words, f"b={one}")
        assert told["sample_names"] == ["3.npy[0]", "3.npy[1]", "3.npy[2]"]
    message = "inputs must have equal numbers of samples, or one, got a 3, b 2"
    assert message in expect_complaint(capsys, *words, "b=2.npy")


@pytest.mark.parametrize("words", [["verify", "pictures.tflite"], ["pictures.tflite", "--verify"]])
def test_each_picture_of_a_folder_is_a_sample(words: list[str]) -> None:
    """Each picture in a folder is a sample; other files are ignored."""
    words = [*words, "--json", "--image", "pictures", "--image", "pictures/1.png"]
    told = json.loads(run_program(words).stdout)
    told = told["models"][0]["verification"] if "models" in told else told
    names = ["pictures/0.png", "pictures/1.png", "pictures/2.png", "pictures/1.png"]
    assert told["sample_names"] == names


def test_convert_verifies_with_given_data(capsys: Captured) -> None:
    """`convert --verify` takes `--input`; `--seed` and `--samples` apply to several models."""
    words = ["model.tflite", "m.onnx", "--verify", "--input", "x=arrays"]
    assert main([*words, "--samples", "3"]) == 0
    assert "ONNX Runtime on 3 samples" in capsys.readouterr().out
    words = ["model.tflite", "a.task", "-o", "out", "--verify", "--seed", "5", "--samples", "1"]
    single, bundle = json.loads(run_program([*words, "--json"]).stdout)["models"]
    for found in (single["verification"], bundle["models"][0]["verification"]):
        assert (found["seed"], found["samples"]) == (5, 1)


def test_tolerance_decides_whether_a_difference_is_right(capsys: Captured) -> None:
    """--tolerance decides whether a difference is right."""
    Path("abs.tflite").write_bytes(chain("ABS"))
    wrong = convert("abs.tflite").model
    wrong.graph.node[0].op_type = "Relu"
    onnx.save(wrong, "wrong.onnx")
    x = np.ones((1, 2, 3, 5), np.float32)
    x[0, 1, 2] = -0.1  # a difference of a tenth of the range
    np.save("x.npy", x[0])
    words = ["verify", "abs.tflite", "wrong.onnx", "--input", "x=x.npy", "-q", "--tolerance"]
    assert [main([*words, part]) for part in ("0.05", "0.2")] == [2, 0]
    assert "output y: its difference must be at most 0.05, got 0.1" in capsys.readouterr().err


def test_default_tolerance_is_larger_for_float16() -> None:
    """The default tolerance is larger for float16 models; a tolerance of the user applies."""
    half = convert("model.tflite", float16=True)
    assert verify("model.tflite", half).ok
    assert verify("model.tflite", half, tolerance=1e-2).ok
    assert not verify("model.tflite", half, tolerance=1e-6).ok


def test_json_of_bundle_has_each_report_or_error(capsys: Captured) -> None:
    """The JSON report of a bundle has the report or the error of each model."""
    Path("a.task").write_bytes(archive({"a.tflite": chain("ABS"), "b.tflite": chain("NEG")}))
    assert main(["a.task", "out", "-q"]) == 0
    Path("out/b.onnx").unlink()
    assert main(["verify", "a.task", "out", "--json"]) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert (told["model"], [each["name"] for each in told["models"]]) == (
        "a.task", ["a.tflite", "b.tflite"],
    )  # fmt: skip
    assert told["models"][0]["ok"]
    assert told["models"][1]["error"] in err


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("none.npy", "cannot read none.npy: No such file or directory"),
        ("model.tflite", "cannot read model.tflite: it must be a .npy or .npz file of numbers"),
        ("several.npz", "several.npz must have one array or an array x, got a, b"),
        ("broken.npz", "cannot read broken.npz: it must be a .npy or .npz file of numbers"),
        ("empty", "empty must have files that end in .npy, .npz, got none"),
        ("odd.npy", "input x must be float32[2, 11, 11, 16] or a batch of it, got float32[3, 11"),
        ("zero.npy", "a batch of it, got float32[0, 11, 11, 16] in zero.npy"),
        ("text.npy", "a batch of it, got string[2] in text.npy"),
    ],
)
@pytest.mark.parametrize("words", [["verify", "model.tflite"], ["model.tflite", "--verify"]])
def test_refuses_files_that_are_no_input(
    capsys: Captured, words: list[str], file: str, message: str
) -> None:
    """The error is one line that names the file, and nothing is written."""
    Path("broken.npz").write_bytes(Path("one.npz").read_bytes()[:-100])
    np.save("odd.npy", np.zeros((3, *SHAPE[1:]), np.float32))
    np.save("zero.npy", np.zeros((0, *SHAPE[1:]), np.float32))
    np.save("text.npy", np.array(["a", "b"]))
    assert message in expect_complaint(capsys, *words, "--input", f"x={file}")


def test_unreadable_folder_is_an_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the operating system is printed."""

    def fail(path: Path) -> Iterator[Path]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", fail)
    assert main(["verify", "model.tflite", "--input", "x=arrays"]) == 1
    assert capsys.readouterr().err.endswith(": cannot read arrays: Permission denied\n")


def test_integers_must_fit_the_type_of_the_input(capsys: Captured) -> None:
    """Integers must fit the type; the error for floats gives the formula that quantizes them."""
    Path("int8.tflite").write_bytes(pictures("int8", scale=0.5, zero_point=9))
    numbers = np.full((2, 5, 7, 3), -128)
    np.save("x.npy", numbers)
    words = ["verify", "int8.tflite", "--input", "x=x.npy"]
    assert read_report(capsys, *words)["samples"] == 2
    for value in (128, -129):
        numbers[1] = value
        np.save("x.npy", numbers)
        message = f"values of x.npy[1] must be -128 to 127 (int8), got {value}"
        assert message in expect_complaint(capsys, *words)
    np.save("x.npy", numbers.astype(np.float32))
    message = "; quantize real numbers first: round(x / 0.5) + 9"
    assert message in expect_complaint(capsys, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pictures.tflite", "--image", "pictures"], "--image must be given with --verify or"),
        (["model.tflite", "--samples", "3"], "--samples must be given with --verify or --report"),
        (["model.tflite", "--seed", "0"], "--seed must be given with --verify or --report"),
        (["model.tflite", "--tolerance", "1"], "--tolerance must be given with --verify or"),
        (["model.tflite", "--input", "x=one.npy"], "--input must be given with --verify or"),
        (["model.tflite", "--verify", "--input", "x"], "--input must be NAME=FILE, data to"),
        (["model.tflite", "--verify", "--tolerance", "-1"], "--tolerance must be a finite number"),
        (
            ["model.tflite", "a.task", "-o", "out", "--verify", "--image", "pictures"],
            "--image must be given for one model, got several",
        ),
        (
            ["a.task", "--verify", "--input", "x=one.npy"],
            "--input must be given for one model, got a bundle",
        ),
        (
            ["verify", "a.task", "--input", "x=one.npy"],
            "--input must be given for one model, got a bundle",
        ),
        (
            ["verify", "a.task", "--report", "x.html"],
            "--report must be a folder for several models or a bundle, each of which has a page,",
        ),
        (
            ["verify", "model.tflite", "--input", "y=one.npy"],
            "the name of an input must be x, got y",
        ),
        (
            ["verify", "pictures.tflite", "--image", "pictures", "--input", "x=p.npy"],
            "input x must be given as arrays or pictures, got both",
        ),
        (["verify", "pictures.tflite", "--image", "empty"], "empty must have files that end in"),
        (["verify", "pictures.tflite", "--image", "a.task"], "cannot read a.task: "),
    ],
)
def test_wrong_inputs_are_one_line_of_error_and_no_file(
    capsys: Captured, words: list[str], message: str
) -> None:
    """The error is one line, and nothing is written."""
    np.save("p.npy", np.zeros((1, 5, 7, 3), np.float32))
    assert message in expect_complaint(capsys, *words)


@pytest.mark.parametrize("option", ["--tolerance", "--samples", "--seed"])
@pytest.mark.parametrize("words", [["verify", "model.tflite"], ["model.tflite", "--verify"]])
def test_refuses_words_in_place_of_numbers(capsys: Captured, words: list[str], option: str) -> None:
    """A value that is not a number gives one line of error."""
    with pytest.raises(SystemExit) as caught:
        main([*words, option, "x"])
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert f"{option} must be a " in err
    assert err.count("\n") == 1
