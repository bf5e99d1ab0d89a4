"""Wrong, contradictory and unusual arguments: names of tensors, outputs, sizes, other files."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support import Build
from tests.support.small import chain
from tests.test_bundle import archive
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.errors import OptionError

Captured = pytest.CaptureFixture[str]


def build_named() -> bytes:
    """Return "x" -> ABS -> "y", with "image" -> "result" in the signature."""
    m = Build()
    x = m.input((1, 5, 7, 3), name="x")
    (y,) = m.op("ABS", [x], [m.tensor(x.shape, name="y")])
    m.output(y)
    m.signature("main", {"image": x}, {"result": y})
    return m.bytes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write models to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(build_named())
    Path("plain.tflite").write_bytes(chain("ABS"))
    Path("a.task").write_bytes(archive({"a": chain("ABS")}))


def write_without_weights(path: Path) -> None:
    """Write an ONNX model whose file of weights is missing."""
    m = Build()
    x = m.input((1, 512))
    m.output(*m.op("ADD", [x, m.constant(np.arange(512, dtype=np.float32))], [(1, 512)]))
    convert(m.bytes()).save(path, 1024)
    Path(f"{path}.data").unlink()


def expect_complaint(captured: Captured, *words: str) -> str:
    """Run a command that fails with one line, and writes nothing."""
    before = sorted(Path().rglob("*"))
    assert main(list(words)) == 1
    out, err = captured.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(Path().rglob("*")) == before
    return err


# Names of inputs and outputs


@pytest.mark.parametrize("names", ["tensor", "signature"])
@pytest.mark.parametrize("name", ["x", "image", "new"])
def test_options_take_every_name_of_an_input(names: str, name: str, capsys: Captured) -> None:
    """The name in the graph, in the signature, and after a renaming."""
    words = ["model.tflite", "--names", names, "--rename", "x=new", "--json"]
    words += ["--layout", f"{name}=NCHW", "--shape", f"{name}=2,5,7,3", "--inputs", name]
    assert main(words) == 0
    (told,) = json.loads(capsys.readouterr().out)["models"]
    (x,) = told["inputs"]
    assert (x["name"], x["onnx_shape"]) == ("new", [2, 3, 5, 7])


@pytest.mark.parametrize("names", ["tensor", "signature"])
@pytest.mark.parametrize("name", ["y", "result", "new"])
def test_options_take_every_name_of_an_output(names: str, name: str, capsys: Captured) -> None:
    """Likewise, for outputs; a renaming takes the name in the graph and in the signature."""
    words = ["model.tflite", "--names", names, "--rename", "result=new", "--json"]
    assert main([*words, "--layout", f"{name}=NCHW", "--outputs", name]) == 0
    (told,) = json.loads(capsys.readouterr().out)["models"]
    (y,) = told["outputs"]
    assert (y["name"], y["onnx_shape"]) == ("new", [1, 3, 5, 7])


def test_refuses_options_by_two_names_of_one_tensor(capsys: Captured) -> None:
    """Options of one tensor, given by two of its names, contradict each other."""
    words = ["--shape", "x=2,5,7,3", "--shape", "image=1,5,7,3"]
    told = expect_complaint(capsys, "model.tflite", *words)
    assert "--shape must be given once for each tensor, got x and image" in told


# Outputs


def test_output_of_a_bundle_must_be_a_folder(capsys: Captured) -> None:
    """The output of a bundle is a folder, which is not named like an ONNX file."""
    expected = "the output of a bundle must be a folder, got a.onnx"
    assert expected in expect_complaint(capsys, "a.task", "-o", "a.onnx")
    assert expected in expect_complaint(capsys, "a.task", "a.onnx")
    Path("a.onnx").mkdir()
    assert main(["a.task", "a.onnx"]) == 0


@pytest.mark.parametrize("words", [["new/"], ["-o", "new/"], ["-o", "new"]])
def test_output_without_extension_is_a_new_folder(words: list[str]) -> None:
    """An output that ends in a slash is a folder, and so is `-o` without the extension .onnx."""
    assert main(["plain.tflite", *words]) == 0
    assert Path("new/plain.onnx").is_file()


@pytest.mark.parametrize("output", ["new/", "new", "file.onnx"])
def test_standard_input_is_named_model(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of standard input is model."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(chain("ABS"))))
    assert main(["-", "-o", output]) == 0
    assert Path("file.onnx" if output == "file.onnx" else "new/model.onnx").is_file()


# Values in Python


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"float16": "yes"}, "`float16` must be True or False, got 'yes'"),
        ({"static": 1}, "`static` must be True or False, got 1"),
        ({"shapes": {"x": (None, 5, 7, 3)}}, "a size must be a positive number or a name"),
        ({"shapes": {"x": (True, 5, 7, 3)}}, "a size must be a positive number or a name"),
        ({"batch": True}, "a size must be a positive number or a name, got True"),
        ({"opset": True}, "`opset` must be 9 to"),
        ({"batch": 2, "shapes": {"x": (4, 5, 7, 3)}}, "x must be 1 or the batch, 2, got 4"),
        ({"weights": "int8", "quantization": "float"}, "`weights` must be auto with"),
        ({"activations": "uint8", "quantization": "float"}, "`activations` must be auto with"),
    ],
)
def test_refuses_values_of_wrong_types_and_contradictions(
    options: dict[str, Any], reason: str
) -> None:
    """Values that look like others are refused, and values that contradict each other."""
    with pytest.raises(OptionError, match=reason):
        convert(build_named(), **options)


def test_floats_do_not_contradict_a_target_of_integers() -> None:
    """The integers that a target prefers do not contradict floats."""
    options: dict[str, Any] = {"quantization": "float", "target": "openvino"}
    assert convert(build_named(), **options).opset >= 17


def test_sizes_and_opsets_may_be_integers_of_numpy() -> None:
    """Sizes and opsets may be numpy's integers."""
    sizes = [*np.array([2, 5, 7, 3])]
    options: dict[str, Any] = {"shapes": {"x": sizes}, "opset": np.int64(18)}
    result = convert(build_named(), **options)
    assert (result.inputs[0].tflite_shape, result.opset) == ((2, 5, 7, 3), 18)
    batched: dict[str, Any] = {"batch": np.int32(4)}
    assert convert(build_named(), **batched).inputs[0].tflite_shape == (4, 5, 7, 3)
    onnx.checker.check_model(result.model)


# Other files


def test_message_names_the_file_in_the_wrong_place(capsys: Captured) -> None:
    """The message is about the file that is in the wrong place."""
    assert main(["-q", "plain.tflite"]) == 0
    told = expect_complaint(capsys, "verify", "plain.onnx", "plain.tflite")
    assert "plain.tflite is a TFLite model; the TFLite model must be given first" in told
    assert "this is an ONNX model, not a TFLite model: give the" in expect_complaint(
        capsys, "plain.onnx", "out.onnx"
    )


@pytest.mark.parametrize("words", [[""], ["model.tflite", ""], ["model.tflite", "-o", ""]])
def test_refuses_empty_names_of_files(words: list[str], capsys: Captured) -> None:
    """A variable of the shell that is not set is an empty word."""
    assert main(words) == 1
    assert "the name of a file must not be empty" in capsys.readouterr().err


def test_only_the_model_is_required(capsys: Captured) -> None:
    """The command `verify` needs the TFLite model only."""
    with pytest.raises(SystemExit, match="1"):
        main([])
    required = "MODEL.tflite must be given;"
    assert required in capsys.readouterr().err


# Contradictions


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--quantization float --weights int8", "--weights must be auto with --quantization float"),
        (
            "--quantization float --activations int8",
            "--activations must be auto with --quantization",
        ),
        ("--quantization float --io-type x=int8", "--io-type must be float with --quantization"),
        ("--quantization symmetric --weights adaptive", "--weights must be auto or int8 with"),
        ("--quantization symmetric --io-type uint8", "--io-type must be float or int8 with"),
        ("--target tensorrt --weights uint8", "--weights must be auto or int8 with --quant"),
        ("--quantization qoperator --float16", "qoperator must be given without --float16"),
        ("--quantization qoperator --weights adaptive", "--weights must be auto, int8 or uint8"),
        ("--float16-io", "--float16-io must be given with --float16"),
        ("--batch 2 --preprocess", "--preprocess must be given without --batch: a"),
        ("--static --batch n", "--static must not be given with the names of dynamic sizes"),
        ("--parts", "--parts must be given with --preprocess or --postprocess"),
        ("--seed 0", "--seed must be given with --verify or --report"),
        ("--target genai --report r.html", "--target genai must be given without --report"),
        ("model.tflite -o several.onnx", "the output of several models must be a folder"),
    ],
)
def test_refuses_options_without_effect(words: str, reason: str, capsys: Captured) -> None:
    """Two options are refused together if one would have no effect."""
    assert reason in expect_complaint(capsys, "plain.tflite", *words.split())


def test_python_and_the_command_line_spell_options_in_their_own_way(capsys: Captured) -> None:
    """A message names the argument of a function in Python, and the option on a command line."""
    with pytest.raises(OptionError, match=r"^`float16_io` must be given with `float16`$"):
        convert(build_named(), float16_io=True)
    told = expect_complaint(capsys, "model.tflite", "--float16-io")
    assert told.endswith(" --float16-io must be given with --float16\n")
    assert main(["model.tflite", "--float16-io", "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["models"]
    assert failure["error"] == "--float16-io must be given with --float16"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--quantization symmetric", "--quantization has no effect, because the model has no"),
        ("--activations uint8", "--activations has no effect, because the model has no"),
        ("--weights uint8", "--weights has no effect, because the model has no quantized"),
        ("--caches shared", "--caches has no effect, because no signature has a cache"),
        ("--states required", "--states has no effect, because the model keeps no state"),
        ("integers.tflite --float16", "--float16 has no effect, because every node computes"),
        ("--quantization float", ""),
        ("--target tensorrt", ""),
        ("--float16", ""),
    ],
)
def test_options_without_effect_on_a_model_are_named(
    words: str, reason: str, capsys: Captured
) -> None:
    """An option that changes nothing for this model is named in a warning."""
    m = Build()
    x = m.input((1, 5), dtype="int8", scale=0.5)
    m.output(*m.op("ABS", [x], [m.tensor(x.shape, dtype="int8", scale=0.5)]))
    Path("integers.tflite").write_bytes(m.bytes())
    names = [] if words.startswith("integers") else ["model.tflite"]
    assert main([*names, *words.split()]) == 0
    told = capsys.readouterr().err
    assert reason in told
    assert ("no effect" in told) == bool(reason)


@pytest.mark.parametrize("words", ["", "--weights auto", "--io-type float --target tensorrt"])
def test_target_does_not_contradict_float_quantization(words: str) -> None:
    """The default target sets `weights`, which has no effect on a model of floats."""
    assert main(["plain.tflite", "-q", "--quantization", "float", *words.split()]) == 0


# Wrong commands: each row is what is typed, and what the message says.
WRONG = [
    ("missing.tflite", "cannot read missing.tflite: No such file or directory"),
    ("http://x.org/m.tflite", "No such file or directory; download it first"),
    ("empty.tflite", "empty.tflite is empty"),
    ("text.tflite", "text.tflite: this is not a TFLite model (the identifier TFL3 is missing)"),
    ("half.tflite", "half.tflite: the TFLite model is truncated or damaged"),
    ("pipe", "cannot read pipe: it is a pipe, not a regular file; give its bytes"),
    ("-", "standard input is empty"),
    ("folder", "folder must have a model in it, but no file ends in .tflite"),
    (".", ". is a folder: give the folder to write to, as -o FOLDER"),
    ("saved", "saved is a SavedModel of TensorFlow, not a TFLite model: convert it with"),
    ("text.task", "TFL3 is missing), nor a bundle (a zip archive)"),
    ("inspect half.task", "the bundle is truncated or damaged (File is not a zip file): download"),
    ("bad.task out", "is truncated or damaged (Bad CRC-32 for file 'a'): download it again"),
    ("verify keras.task", "this is a Keras model (.keras), not a TFLite model: convert it with"),
    ("words.task", "the bundle must have a TFLite model in it, got none"),
    ("model.tflite.gz", "this is a gzip file, not a TFLite model: unpack it with gunzip first"),
    ("plain.tflite /proc/out.onnx", "/proc/out.onnx: no file can be made there; choose another"),
    ("plain.tflite -o /proc/new", "/proc/new/plain.onnx: no file can be made there; choose"),
    ("a.task -o /proc/new", "cannot write to /proc/new: no file can be made there; choose another"),
    ("verify plain.tflite --report /proc/p.html", "/proc/p.html: no file can be made there"),
    ("plain.tflite --report none/p.html", "No such file or directory; make the folder none"),
    ("verify plain.tflite --opset 17", "no option --opset; it is an option of the command convert"),
    ("inspect plain.tflite --verify", "--verify; it is an option of the command convert; see"),
    ("plain.tflite --storage", "no option --storage; it is an option of the command inspect"),
    ("plain.tflite --per-operator", "--per-operator; it is an option of the command verify; see"),
    ("ops --target qnn", "there is no option --target; it is an option of the command convert"),
    ("plain.tflite --half", "there is no option --half; did you mean --float16?"),
    ("plain.tflite --input_shape x=1", "there is no option --input_shape; did you mean --shape?"),
    ("plain.tflite --dynamic-batch", "no option --dynamic-batch; did you mean --batch?"),
    ("plain.tflite --inputs-as-nchw x", "no option --inputs-as-nchw; did you mean --io-layout?"),
    ("plain.tflite --target ort", "got ort; did you mean onnxruntime?"),
    ("plain.tflite --target trt", "got trt; did you mean tensorrt?"),
    ("plain.tflite --target cpu", "got cpu; did you mean onnxruntime?"),
    ("check a.onnx --target wasm", "got wasm; did you mean web?"),
    ("plain.tflite --target Android", "got Android; did you mean nnapi?"),
    ("plain.tflite --keep-nhwc", "no option --keep-nhwc; did you mean --io-layout?"),
    ("plain.tflite --precision fp16", "no option --precision; did you mean --float16?"),
    ("plain.tflite --dynamic-axes x", "no option --dynamic-axes; did you mean --shape?"),
    ("--tflite a.tflite --output b.onnx", "no option --tflite: the model is given without one"),
    (
        "-i plain.tflite -o a.onnx",
        "no option -i: the model is given without one, as in tflite2onnx",
    ),
    ("model.tflite --layout x=HWC", "layout of x: HWC must have a letter for each of the"),
    (
        "model.tflite --verify --tolerance 5",
        "--tolerance must be at most 1, the whole range, got",
    ),
    ("verify model.tflite -o out.onnx", "there is no option -o; it is an option of the command"),
    ("version", "there is no command version; did you mean --version?"),
    ("plain.tflite --target TensorRT", "got TensorRT; did you mean tensorrt?"),
    ("completion powershell", "SHELL must be bash, zsh, tcsh or fish, got powershell"),
    ("completion bash zsh", "the argument zsh must be left out; see"),
    ("help verfy", "there is no command verfy; did you mean verify?"),
    ("Verify plain.tflite", "there is no command Verify; did you mean verify?"),
    ("model.tflite --layout x=nchw", "capital letters, one for each axis, such as NHWC, got nchw"),
    ("model.tflite --layout x=channels_last", "such as NHWC, got channels_last"),
    ("model.tflite --layout x=NHWC:ABCD", "NHWC and ABCD must have the same letters, each once"),
    ("model.tflite --shape x=[1,5,7,3]", "SIZE,SIZE,..., as in x=1,16000, got x=[1,5,7,3]"),
    ("model.tflite --shape x=a,b", "x must have 4 sizes, as in [1, 5, 7, 3], got [a, b]"),
    ("model.tflite --inputs q", "no tensor q; tflite2onnx inspect --graph lists the tensors"),
    ("model.tflite --inputs y --outputs x", "the outputs also need x; name every input that"),
    ("model.tflite --signature all", "--signature all must be given with a model and -o FOLDER"),
    ("model.tflite --preprocess size=10", "size must be a height and a width, as in size=480x640"),
    ("model.tflite --preprocess std=0", "std must be a number other than 0, or one for each"),
    ("model.tflite --postprocess decoder=ssd", "decoder=ssd does not fit outputs of [1, 5, 7, 3]"),
    ("model.tflite --verify --seed -1", "--seed must be a whole number of at least 0, got -1"),
    ("model.tflite --verify --image folder", "folder must have files that end in .bmp, .gif,"),
    ("verify model.tflite text.tflite.onnx", "got another or a damaged file; convert the model"),
    ("verify model.tflite folder", "folder must have the ONNX files of model.tflite, got none of"),
    ("check empty.onnx --target qnn", "must be an ONNX model, got a file that is empty or has"),
    ("check none.onnx --target qnn", "none.onnx: cannot read the file: No such file or directory"),
    ("folder -o out", "folder must have a model in it, but no file ends in .tflite"),
    (". -o .", "cannot write .: it is the folder of the models"),
    ("inspect folder", "cannot read folder: it is a folder; give a file in it"),
    ("plain.tflite none/out.onnx", "No such file or directory; make the folder none first"),
    ("plain.tflite folder", "the folder of the output must be given as -o folder, got folder"),
    ("plain.tflite plain.tflite", "cannot write plain.tflite: it is the TFLite model"),
    ("plain.tflite a.onnx b.onnx", "a model must have one output, got a.onnx and b.onnx"),
    ("plain.tflite --report -", "--report must be a file or a folder, got standard output"),
    ("plain.tflite --report p.tflite", "the page must not be named like a TFLite model"),
    ("verify plain.tflite text.tflite", "the converted file must be an ONNX model, got another"),
    ("verify plain.tflite empty.tflite", "empty.tflite is empty"),
    ("verify plain.tflite a.onnx b.onnx", "the argument b.onnx must be left out; see"),
    ("verify", "MODEL.tflite must be given; see tflite2onnx verify --help"),
    ("verfy plain.tflite", "there is no command verfy; did you mean verify?"),
    ("check plain.tflite --target qnn", "got something else; convert a TFLite model first"),
    ("plain.tflite --quantisation float", "no option --quantisation; did you mean --quantization?"),
    ("plain.tflite --target openvin", "got openvin; did you mean openvino?"),
    ("plain.tflite --opset x", "--opset must be a whole number, got x; see"),
    ("plain.tflite --opset 99", "--opset must be 9 to"),
    ("plain.tflite --verify --tolerance x", "--tolerance must be a number, got x"),
    ("plain.tflite --verify=yes", "--verify must be given without a value, got yes"),
    ("plain.tflite --target", "--target must be given with a value"),
    ("plain.tflite -q -v", "--verbose must be given without --quiet"),
    ("plain.tflite --verify --samples 0", "--samples must be a whole number of at least 1, got 0"),
    ("model.tflite --layout x=NCHWD", "NHWDC and NCHWD must have a letter for each"),
    ("model.tflite --layout x", "--layout must be NAME=NCHW, NAME=NHWC:NCHW or a JSON file, got x"),
    ("model.tflite --shape x=1,-5,7,3", "--shape: a size must be a positive number or a name"),
    ("model.tflite --batch 0", "--batch: a size must be a positive number or a name, got 0"),
    ("model.tflite --io-type x=int5", "--io-type must be float, int8 or uint8, got int5"),
    ("model.tflite --signature serve", "--signature must be main, got serve"),
    ("model.tflite --outputs nothing", "--outputs: the model has no tensor nothing"),
    ("model.tflite --verify --image text.tflite", "it must be a picture, such as PNG or JPEG"),
    ("covert model.tflite", "there is no command covert; did you mean convert?"),
    ("model.tflite --fp16", "there is no option --fp16; did you mean --float16?"),
    ("model.tflite --io_layout tflite", "no option --io_layout; did you mean --io-layout?"),
    ("model.tflite --io-layout NCHW", "auto, tflite or onnx, got NCHW; did you mean onnx?"),
    ("model.tflite --quantization int8", "or float, got int8; did you mean qdq?; see tflite2onnx"),
    ("model.tflite --opset=", "--opset must be a whole number, got nothing"),
    ("model.tflite --jobs 0", "--jobs must be at least 1, got 0"),
    ("model.tflite --shape 1,5,7,3", "--shape must be NAME=SIZE,SIZE,..., once for each name"),
    ("model.tflite --shape x=1,5", "x must have 4 sizes, as in [1, 5, 7, 3], got [1, 5]"),
    ("model.tflite --shape picture=1,5,7,3", "no input picture; choose x"),
    ("model.tflite --layout list.json", 'must have a mapping such as {"input": ["NHWC"'),
    ("model.tflite --layout none.json", "cannot read none.json: No such file or directory"),
    ("model.tflite --inputs=", "--inputs must be names of tensors, as in a,b, got nothing"),
    ("model.tflite --outputs y,", "--outputs must be names of tensors, as in a,b, got y,"),
    ("model.tflite --inputs x,x", "--inputs must name each tensor once, got x twice"),
    ("model.tflite --rename x=y", "--rename: two inputs or outputs would be named y"),
    ("model.tflite --rename nothing=z", "no input or output nothing; choose x or y"),
    ("model.tflite --signature=", "--signature must be main, got nothing"),
    ("model.tflite --batch loop", "--batch must be loop:N or loop:NAME, got loop"),
    ("model.tflite --static --shape x=n,5,7,3", "--static must not be given with the names"),
    ("model.tflite --preprocess mean=a", "mean must be a number, or one for each channel"),
    ("model.tflite --preprocess colour=rgb", "no key colour; known keys are mean, std"),
    ("model.tflite --postprocess decoder=yolo", "decoder must be mediapipe, yolov5, yolov8"),
    ("model.tflite --postprocess threshold=2", "threshold must be a number from 0 to 1, got 2"),
    ("model.tflite --verify --input x.npy", "--input must be NAME=FILE, data to verify on"),
    ("model.tflite --verify --input x=text.tflite", "must be a .npy or .npz file of numbers"),
    ("model.tflite --verify --input z=none.npy", "the name of an input must be x, got z"),
    ("model.tflite --verify --input x=folder", "must have files that end in .npy, .npz, got none"),
    ("model.tflite --verify --tolerance nan", "must be a finite number above 0, got nan"),
    ("model.tflite --external-data-size big", "--external-data-size must be a number of bytes"),
    ("model.tflite plain.tflite/out.onnx", "Not a directory; plain.tflite is a file"),
    ("model.tflite --resume", "--resume must be given with a folder or several models, got one"),
    ("a.task --signature main", "--signature must not be given, because the model has none"),
    ("verify model.tflite none.onnx", "cannot read none.onnx: No such file or directory"),
    ("verify model.tflite --prompt 1,2", "--prompt must be given with a bundle, a folder or"),
    ("verify model.tflite --prompt a", "--prompt must be numbers, as in 1,2,3, got a"),
    ("verify a.task none.onnx", "none.onnx must have the ONNX files of a.task, got none of"),
    ("verify - -", "only one model can be standard input, got - twice"),
    ("check text.tflite", "--target must be given; see tflite2onnx check --help"),
    ("check folder --target qnn", "it is a folder; give a file in it"),
    ("inspect --graphs model.tflite", "there is no option --graphs; did you mean --graph?"),
    ("inspect model.tflite out.onnx", "the argument out.onnx must be left out"),
    ("completion", "SHELL must be given; see tflite2onnx completion --help"),
    ("help nothing", "there is no command nothing; see tflite2onnx --help"),
    (
        "model.tflite --io-type float32",
        "--io-type must be float, int8 or uint8, got float32; did you",
    ),
    ("model.tflite --io-type x=fp16", "int8 or uint8, got fp16; --float16-io makes them float16"),
    ("model.tflite --io-type int8 --io-type float", "must be one TYPE for all, or NAME=TYPE, once"),
    ("model.tflite --target OpenVINO", "got OpenVINO; did you mean openvino?; see"),
    ("check model.tflite --target QNN", "got QNN; did you mean qnn?; see tflite2onnx check --help"),
    ("completion BASH", "SHELL must be bash, zsh, tcsh or fish, got BASH; did you mean bash?; see"),
    ("completion --shell bash", "there is no option --shell; see tflite2onnx completion --help"),
    ("--model model.tflite", "there is no option --model: the model is given without one"),
    ("help verify inspect", "the argument inspect must be left out; see tflite2onnx --help"),
    ("models -o -", "cannot write to -: the output of several models must be a folder"),
    ("models -o out --report models", "cannot write models: it is the folder of the models"),
    ("models -o out --report p.html", "--report must be a folder for several models or a bundle"),
    (f"{'a' * 300}.tflite", "a.tflite: File name too long"),
    (f"plain.tflite {'a' * 300}.onnx", "a.onnx: File name too long"),
    (
        "plain.tflit",
        "cannot read plain.tflit: No such file or directory; did you mean plain.tflite",
    ),
    ("Plain.tflite", "No such file or directory; did you mean plain.tflite?"),
    ("inspect models/B.tflite", "No such file or directory; did you mean b.tflite?"),
    ("plain.tflite -o plain.tflite/new/out", "Not a directory; plain.tflite is a file"),
    ("model.tflite --shape x=1,99999999999,7,3", "got 99999999999; it must be below 2147483648"),
    ("verify model.tflite --tolerance 0", "--tolerance must be a finite number above 0, got 0"),
    ("verify model.tflite --report folder", "cannot write folder: the page of one model must be a"),
    (
        "verify model.tflite --report new/",
        "cannot write new/: the page of one model must be a file",
    ),
    ("verify model.tflite --report -", "--report must be a file or a folder, got standard output"),
    ("verify model.tflite --report x.tflite", "the page must not be named like a TFLite model"),
    (
        "verify model.tflite --report no/p.html",
        "No such file or directory; make the folder no first",
    ),
    (
        "verify model.tflite --report model.tflite",
        "cannot write model.tflite: it is the TFLite model",
    ),
    (
        "model.tflite o.onnx --report o.onnx.data",
        "o.onnx.data: it is the file of the model's weights",
    ),
    ("model.tflite o.onnx --report o.onnx", "cannot write o.onnx: it is the ONNX model"),
    ("verify model.tflite --prompt=", "--prompt must be numbers, as in 1,2,3, got nothing"),
    ("verify model.tflite weightless.onnx", "the file of its weights is missing, "),
    ("verify model.tflite --signature none", "--signature must be main, got none"),
    ("verify model.tflite --samples 1.5", "--samples must be a whole number, got 1.5"),
    ("model.tflite --layout x=NCHW --layout x=NHWC", "the layout of x must be given once, got two"),
    ("model.tflite --target", "--target must be given with a value"),
    (
        "model.tflite --lengths joined",
        "--lengths must be auto or each for one signature, got joined",
    ),
    ("model.tflite - --external-data", "--external-data must be given with OUT.onnx, got standard"),
    ("models --resume -o out --shape x=1", "--shape must be given for one model, got several"),
    (
        "graph.pb out.onnx",
        "this is a graph of TensorFlow (.pb), not a TFLite model: convert it with",
    ),
    ("saved/saved_model.pb", "this is a SavedModel of TensorFlow (.pb), not a TFLite model: conv"),
    ("inspect saved", "saved is a SavedModel of TensorFlow, not a TFLite model: convert it with"),
    ("keras.task out.onnx", "this is a Keras model (.keras), not a TFLite model: convert it with"),
    ("model.json", "this is a model of TensorFlow.js: convert its original to TFLite first"),
    ("model.ort", "this is a model of ONNX Runtime (.ort), not a TFLite model: give the .tflite"),
    ("--saved-model saved --output a.onnx", "no option --saved-model; the model must be a .tflite"),
    ("--graphdef g.pb --inputs x:0", "--graphdef; the model must be a .tflite file, which tf.lite"),
    ("--input_tflite_file_path model.tflite", "no option --input_tflite_file_path: the model is"),
    ("model.tflite --output_folder_path out", "--output_folder_path; did you mean --output?"),
    ("model.tflite -ois x:1,5,7,3", "there is no option -ois; did you mean --shape?"),
    ("model.tflite -oiqt", "there is no option -oiqt; a quantized model stays quantized"),
    ("model.tflite -osd", "there is no option -osd; did you mean --names signature?"),
    ("model.tflite -kat x", "there is no option -kat; did you mean --io-layout tflite?"),
    ("model.tflite -b 4", "there is no option -b; did you mean --batch?"),
    ("model.tflite --dequantize", "--dequantize; did you mean --quantization float?"),
    ("model.tflite --channels-last", "--channels-last; did you mean --io-layout tflite?"),
    ("model.tflite --custom-ops Foo", "no option --custom-ops; did you mean --allow-custom?"),
    ("model.tflite --large_model", "no option --large_model; did you mean --external-data?"),
    ("model.tflite --simplify", "there is no option --simplify; the model is simplified already"),
    ("model.tflite --force", "there is no option --force; a file of this name is replaced"),
    ("model.tflite --dry-run", "no option --dry-run; tflite2onnx inspect MODEL.tflite tells what"),
    ("verify model.tflite --atol 1", "there is no option --atol; did you mean --tolerance?"),
    ("model.tflite --workers 4", "there is no option --workers; did you mean --jobs?"),
    ("model.tflite --device cuda", "there is no option --device; did you mean --target?"),
    ("model.tflite --quantization fp16", "got fp16; did you mean --float16?"),
    ("model.tflite --quantization none", "got none; did you mean float?"),
    ("model.tflite --target rk3588", "got rk3588; did you mean rknn?"),
    ("model.tflite --target snapdragon", "got snapdragon; did you mean qnn?"),
    ("model.tflite --target jetson", "got jetson; did you mean tensorrt?"),
    ("model.tflite --target gpu", "got gpu; did you mean onnxruntime?"),
    ("model.tflite --target npu", "got npu; did you mean qnn, nnapi, coreml, hailo or rknn?"),
    ("model.tflite --target coral", "got coral; the Edge TPU runs TFLite models only"),
    ("my model.tflite", 'a name with blanks must be in quotation marks, as "my model.tflite"'),
    ("verify my model.tflite", "a name with blanks must be in quotation marks, as"),
    ("models/*.tflite -o out", "no file has this name; the shell finds the files of a pattern"),
    ("model.tflite out.pb", "cannot write out.pb: the name of an ONNX model must end in .onnx"),
    ("model.tflite --shape x=1,5,7,3 x=2", "cannot write x=2: the name of an ONNX model must end"),
    ("model.tflite a.onnx -o b.onnx", "a model must have one output, got a.onnx and b.onnx"),
    ("model.tflite -o a.onnx -o b.onnx", "-o must be given once, got a.onnx and b.onnx"),
    ("model.tflite --opset 30", "--opset must be 9 to"),
    ("model.tflite --opset 8", "the newest of the onnx package"),
    ("model.tflite --batch -1", "--batch: a size must be a positive number or a name, got -1"),
    ("--input model.tflite --output a.onnx", "no option --input: the model is given without one,"),
    ("-m model.tflite", "there is no option -m: the model is given without one, as in"),
    ("inspect --input model.tflite", "no option --input: the model is given without one, as in"),
    ("verify model.tflite --onnx a.onnx", "--onnx; the ONNX model is given without an option"),
    ("model.tflite --opset-version 13", "no option --opset-version; did you mean --opset?"),
    ("model.tflite --outdir out", "there is no option --outdir; did you mean --output?"),
    (
        "models --recursive -o out",
        "no option --recursive; a folder is converted with its",
    ),
    ("model.tflite --openvino", "no option --openvino; did you mean --target openvino?"),
    ("model.tflite --runtime ort", "there is no option --runtime; did you mean --target?"),
    ("model.tflite --nms", "there is no option --nms; did you mean --postprocess?"),
    ("model.tflite --validate", "there is no option --validate; did you mean --verify?"),
    ("model.tflite --benchmark", "no option --benchmark; tflite2onnx verify measures the times"),
    ("model.tflite --verbose 1", "cannot write 1: the name of an ONNX model must end in .onnx"),
    ("info model.tflite", "there is no command info; did you mean inspect?"),
    ("compare model.tflite a.onnx", "there is no command compare; did you mean verify?"),
    ("a.onnx out.tflite", "cannot write out.tflite: the output is ONNX; onnx2tf makes a TFLite"),
    ("model.tflite --shape x=1x5x7x3", "got 1x5x7x3; write 1,224,224,3, or n,224,224,3 if it is"),
    ("model.tflite --batch 2.5", "or a name, got 2.5; write 4, or n if it is dynamic"),
    ("model.tflite --calibrate data.npy", "--calibrate; floats stay floats: quantize the TFLite"),
    ("model.tflite --int8-calibration x", "--int8-calibration; floats stay floats: quantize the"),
    ("model.tflite --dtype float16", "there is no option --dtype; did you mean --float16?"),
    ("model.tflite --ir-version 8", "there is no option --ir-version; did you mean --opset?"),
    ("model.tflite --io-layout keep", "tflite or onnx, got keep; did you mean tflite?"),
    ("model.tflite --io-layout channels_last", "got channels_last; did you mean tflite?"),
    ("model.tflite --io-layout channels_first", "got channels_first; did you mean onnx?"),
    ("model.tflite --verify 1e-3", "cannot write 1e-3: the name of an ONNX model must end in"),
    ("model.tflite --external-data weights.bin", "cannot write weights.bin: the name of an ONNX"),
    ("model.tflite --target arm64", "got arm64; did you mean onnxruntime?"),
    ("model.tflite --target directml", "got directml; did you mean onnxruntime?"),
    ("model.tflite --target tflite", "got tflite; the output is an ONNX model"),
    ("model.tflite --preprocess bgr", "--preprocess must be KEY=VALUE,..., as in mean=127.5,std="),
    (
        "model.tflite --postprocess nms",
        "must be KEY=VALUE,..., as in mean=127.5,std=127.5, got nms",
    ),
    ("model.tflite --save-dir out", "there is no option --save-dir; did you mean --output?"),
    ("model.tflite --no-optimize", "no option --no-optimize; did you mean --forms canonical?"),
    ("model.tflite --no-verify", "no option --no-verify; nothing is verified without --verify"),
    ("--from tflite --to onnx model.tflite", "--from; a model is always converted from TFLite to"),
    ("convert model.tflite to out.onnx", "one model is given as MODEL.tflite OUT.onnx"),
    ("-V", "there is no option -V; did you mean --version?"),
    ("-help", "there is no option -help; --help lists the options"),
    ("-?", "there is no option -?; --help lists the options"),
    ("inspect model.tflite --ops", "no option --ops; tflite2onnx inspect MODEL.tflite tells what"),
    ("model.tflite --quantization off", "or float, got off; did you mean float?"),
    ("model.tflite --quantization dynamic", "or float, got dynamic; did you mean qdq?"),
    ("model.tflite --num-samples 4", "no option --num-samples; did you mean --samples?"),
    ("model.tflite --input-names x", "there is no option --input-names; did you mean --inputs?"),
    (
        "model.tflite --layout NCHW",
        "--layout must be NAME=NCHW, NAME=NHWC:NCHW or a JSON file, got NCHW",
    ),
    ("model.tflite --rename x", "--rename must be OLD=NEW, once for each name, got x"),
    ("model.tflite --opset latest", "--opset must be a whole number, got latest"),
    ("model.tflite --verify --tolerance 5%", "--tolerance must be a number, got 5%"),
    ("model.tflite --caches none", "--caches must be separate or shared, got none"),
    ("model.tflite --jobs auto", "--jobs must be a whole number, got auto"),
    ("model.tflite --external-data-size 1GB", "of bytes such as 4096, 64K or 1M, got 1GB"),
    ("model.tflite --preprocess layout=nchw", "layout must be HWC, CHW, NHWC or NCHW, got nchw"),
    ("s3://bucket/model.tflite", "No such file or directory; download it first"),
    ("ops ABS", "the argument ABS must be left out; see tflite2onnx ops --help"),
    ("check a.onnx --target onnxruntime", "web or webgpu, got onnxruntime; see tflite2onnx check"),
    ("a.task --rename a=b", "--rename must be given for one model, got a bundle"),
    ("model.tflite --signature 0", "--signature must be main, got 0"),
    ("model.tflite --report x.pdf", "cannot write x.pdf: the name of a page must end in .html"),
    ("verify model.tflite --report x", "cannot write x: the name of a page must end in .html"),
    ("model.tflite -o out.pb", "the name of an ONNX model must end in .onnx; write out.pb/"),
    ("model.tflite --batch none", "or a name, got none; write 4, or n if it is dynamic"),
    ("model.tflite --shape x=None,5,7,3", "or a name, got None; write 1,224,224,3, or n,224,224"),
    (
        "pool.tflite --layout x=NCHW:NHWC",
        "read it, got NCHW; give NHWC:NHWC to keep it, or NHWC:NCHW to change it",
    ),
    ("pool.tflite --layout x=NCHW:CNHW", "must be NHWC as the operators read it, got NCHW; give"),
    (
        "model.tflite --target openvino --target qnn",
        "--target must be given once, got openvino and qnn",
    ),
    (
        "model.tflite --report a.html --report b.html",
        "--report must be given once, got a.html and b.html",
    ),
    ("model.tflite --opset 17 --opset 18", "--opset must be given once, got 17 and 18"),
    ("model.tflite --float16 yes", "cannot write yes: the name of an ONNX model must end in .onnx"),
    (
        "model.tflite --verify true",
        "cannot write true: the name of an ONNX model must end in .onnx",
    ),
    (
        "model.tflite --quantization rounded --weights float",
        "auto with --quantization rounded, got float",
    ),
    ("model.tflite --layout x=NHWC,NCHW", "NAME=NHWC:NCHW or a JSON file, got x=NHWC,NCHW"),
    ("model.tflite --layout x=NHWC->NCHW", "NAME=NHWC:NCHW or a JSON file, got x=NHWC->NCHW"),
    ("model.tflite --layout x:NCHW", "NAME=NHWC:NCHW or a JSON file, got x:NCHW"),
    ("model.tflite --batch loop:", "a positive number or a name, got nothing; write 4, or n"),
    (
        "model.tflite verify",
        "a command must come first, as in verify model.tflite, got it last",
    ),
    ("model.tflite convert", "a command must come first, as in convert model.tflite"),
    (
        "model.tflite \u2013verify",
        "an option must begin with hyphens, as in --verify, got \u2013verify",
    ),
    ("model.tflite \u2014 verify", "an option must begin with hyphens, as in --verify, got \u2014"),
    (
        "model.tflite .onnx",
        "the name of a file must not be empty; is a variable of the shell not set?",
    ),
    (
        "model.tflite --int16",
        "no option --int16; floats stay floats: quantize the TFLite or the ONNX model",
    ),
    ("model.tflite --qdq", "there is no option --qdq; did you mean --quantization qdq?"),
    ("model.tflite --symmetric", "no option --symmetric; did you mean --quantization symmetric?"),
    ("model.tflite --no-quantize", "no option --no-quantize; did you mean --quantization float?"),
    (
        "model.tflite --output-type float32",
        "there is no option --output-type; did you mean --io-type?",
    ),
    ("model.tflite --keep-io", "there is no option --keep-io; did you mean --io-layout tflite?"),
    ("model.tflite --remove-transpose", "layouts are chosen so that few Transposes remain"),
    ("model.tflite -j 4", "there is no option -j; did you mean --jobs?"),
    ("model.tflite -t qnn", "there is no option -t; did you mean --target?"),
    ("model.tflite --ir 8", "there is no option --ir; did you mean --opset?"),
    ("model.tflite -f", "there is no option -f; a file of this name is replaced"),
    ("model.tflite --tolerance 1e-3", "--tolerance must be given with --verify or --report"),
    (
        "model.tflite --inputs y --outputs x",
        "the outputs also need x; name every input that is needed",
    ),
    ("model.tflite --preprocess channels=RGB", "channels must be rgb, bgr or gray, got RGB"),
    (
        "model.tflite --batch 4 --shape x=2,5,7,3",
        "the first size of x must be 1 or the batch, 4, got 2",
    ),
    (
        "model.tflite --target webgpu --weights uint8",
        "with --quantization rounded, got uint8; the target webgpu sets --quantization rounded",
    ),
    (
        "model.tflite --target nnapi --batch n",
        "with the names of dynamic sizes; the target nnapi sets --static",
    ),
    (
        "model.tflite --static --shape x=n,5,7,3",
        "--static must not be given with the names of dynamic sizes",
    ),
    (
        "model.tflite --io-type nobody=int8",
        "the model has no input or output nobody; choose x or y",
    ),
    ("models out.onnx", "models is a folder: give the folder to write to, as -o FOLDER"),
    ("model.tflite /nowhere/out.onnx", "No such file or directory; make the folder /nowhere first"),
    (
        "verify model.tflite --shape x=2,5,7,3",
        "no option --shape; it is an option of the command convert",
    ),
    (
        "inspect model.tflite --target qnn",
        "no option --target; it is an option of the command convert",
    ),
    ("help verify check", "the argument check must be left out"),
    ("completion powershell", "SHELL must be bash, zsh, tcsh or fish, got powershell"),
    (
        "model.tflite --lengths joined",
        "--lengths must be auto or each for one signature, got joined",
    ),
    ("model.tflite --verify --report", "--report must be given with a value"),
    ("model.tflite --verify --input nobody=x.npy", "the name of an input must be x, got nobody"),
    ("model.tflite --rename x=y", "--rename: two inputs or outputs would be named y"),
    ("model.tflite --rename x=a,y=b", "no input or output x=a,y; give each OLD=NEW with an option"),
    ("model.tflite --target onnxruntime-web", "got onnxruntime-web; did you mean web?"),
    (
        "model.tflite --verify --image https://x.org/cat.png",
        "a file or a folder; download it first",
    ),
    (
        "model.tflite --verify --input=",
        "--input must be NAME=FILE, once for each name, got nothing",
    ),
    (
        "model.tflite --io-type int8",
        "must not be int8, because no QUANTIZE has a scale for it: give",
    ),
    ("model.tflite --ep CUDAExecutionProvider", "no option --ep; did you mean --target?"),
    ("--input_model model.tflite", "no option --input_model: the model is given without one"),
    ("--model=model.tflite", "no option --model: the model is given without one"),
    ("--tflite-file model.tflite", "no option --tflite-file: the model is given without one"),
    ("inspect model.tflite --tensors", "there is no option --tensors; did you mean --graph?"),
]


@pytest.mark.parametrize(("words", "said"), WRONG)
def test_what_a_wrong_command_says(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """One line in the words of the caller, exit status 1, no file, and with --json the same."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    Path("folder").mkdir()
    os.mkfifo("pipe")
    Path("empty.tflite").touch()
    Path("pool.tflite").write_bytes(build_window().bytes())
    Path("text.tflite").write_text("this is a text, and no model")
    Path("list.json").write_text("[1]")
    Path("half.tflite").write_bytes(build_named()[:250])
    Path("saved").mkdir()
    Path("saved/saved_model.pb").write_bytes(b"\x08\x01\x12\x05" + bytes(9))
    bundle = archive({"a": chain("ABS")})
    Path("half.task").write_bytes(bundle[:-60])
    Path("bad.task").write_bytes(bundle.replace(b"TFL3", b"TFL4"))
    Path("keras.task").write_bytes(archive({"config.json": b"{}"}))
    Path("my model.tflite").write_bytes(chain("ABS"))
    Path("graph.pb").write_bytes(b"\n\x1a\n\x05input\x12\x0bPlaceholder")
    Path("model.json").write_text('{"format": "graph-model"}')
    Path("model.ort").write_bytes(b"\x20\0\0\0ORTM" + bytes(24))
    Path("words.task").write_bytes(archive({"words.txt": b"no model"}))
    Path("text.task").write_text("this is a text, and no bundle")
    Path("text.tflite.onnx").write_text("this is a text, and no model")
    Path("empty.onnx").touch()
    Path("models").mkdir()
    Path("models/b.tflite").write_bytes(chain("ABS"))
    write_without_weights(Path("weightless.onnx"))
    Path("model.tflite.gz").write_bytes(gzip.compress(build_named()))
    before = sorted(Path().rglob("*"))
    for option in ([], ["--json"]):
        try:
            status: object = main([*words.split(), *option])
        except SystemExit as usage:
            status = usage.code
        out, err = capsys.readouterr()
        assert status == 1
        assert sorted(Path().rglob("*")) == before
        if option:
            told = json.loads(out or err[err.index("{") :])  # stdout has the model, if it is -
            (failure,) = told.get("models", [told])
            assert said in failure["error"] or said in err
            assert failure["error"] in err
        else:
            assert (out, err.count("\n")) == ("", 1)
            assert said in err
            assert err.startswith("tflite2onnx")


# Layouts


def build_window() -> Build:
    """Return a pooled input in NHWC whose height is dynamic."""
    m = Build()
    sizes: dict[str, Any] = dict.fromkeys(
        ("stride_h", "stride_w", "filter_height", "filter_width"), 2
    )
    x = m.input((1, 6, 7, 3), name="x")
    m.output(*m.op("MAX_POOL_2D", [x], [(1, 3, 4, 3)], **sizes))
    return m


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "layouts differ to save a Transpose; --io-layout tflite keeps"),
        ("--io-layout tflite", ""),
        ("--shape x=1,h,w,3", "inputs of dynamic sizes keep their layout; --io-layout onnx"),
        ("--shape x=1,h,w,3 --io-layout onnx", ""),
    ],
)
def test_summary_says_why_layouts_are_unexpected(words: str, said: str, capsys: Captured) -> None:
    """A conversion says in one sentence why layouts are other than expected."""
    Path("window.tflite").write_bytes(build_window().bytes())
    assert main(["window.tflite", *words.split()]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "--io-layout" in line]
    assert all(len(line) <= 80 for line in told)
    assert any(line.startswith(said) for line in told) == bool(said)
