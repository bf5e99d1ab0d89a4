"""tflite2onnx/cli: the text on stdout and stderr, the written files, and the exit status."""

from __future__ import annotations

import atexit
import json
import logging
import os
import runpy
import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.support import Build
from tests.support.small import build_flattening, chain, network
from tflite2onnx import __version__, convert, supported_operators
from tflite2onnx.cli import convert as command, main
from tflite2onnx.cli.arguments.conversion import GROUPS
from tflite2onnx.cli.parsers import COMMANDS, make_parser
from tflite2onnx.op import OPERATORS
from tflite2onnx.options import ConversionOptions, IoLayout
from tflite2onnx.verification import Difference, Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a file to convert in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.tflite").write_bytes(build_flattening())
    return "model.tflite"


@pytest.fixture
def failing(model: str, tmp_path: Path) -> str:
    """Return the name of a file that cannot be converted."""
    m = Build()
    m.output(*m.custom("Mystery", [m.input([2])], [[2]]))
    (tmp_path / model).write_bytes(m.bytes())
    return model


def run_program(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program in a separate process."""
    command = [sys.executable, "-m", "tflite2onnx", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def files() -> set[str]:
    """Return the contents of the current directory."""
    return set(os.listdir())


def expect_failure(captured: Captured, words: Sequence[str], *, status: int = 1) -> str:
    """Run a failing command; return the error paragraph, which is all that it prints."""
    before = {name: os.stat(name).st_mtime_ns for name in files()}
    assert main(words) == status
    assert {name: os.stat(name).st_mtime_ns for name in files()} == before
    out, err = captured.readouterr()
    assert out == ""
    assert err.startswith("tflite2onnx: ")
    assert err.endswith("\n")
    assert "Traceback" not in err
    return err.removeprefix("tflite2onnx: ").removesuffix("\n")


# Converting


def test_summary_lists_layouts_nodes_and_size(model: str, capsys: Captured) -> None:
    """The summary lists inputs and outputs in both layouts, nodes, moved bytes, opset and size."""
    assert main([model, "out.onnx"]) == 0
    size = os.stat("out.onnx").st_size
    assert capsys.readouterr().out.splitlines() == [
        "input   x      float32  TFLite [2, 5, 7, 3] NHWC   ONNX [2, 3, 5, 7] NCHW",
        "output  image  float32  TFLite [2, 5, 7, 11] NHWC  ONNX [2, 5, 7, 11] NHWC",
        "output  flat   float32  TFLite [2, 385]            ONNX [2, 385]",
        "3 nodes, 3,080 bytes moved by 1 Transpose, opset 17",
        "layouts differ to save a Transpose; --io-layout tflite keeps the file's",
        f"wrote out.onnx, {size:,} bytes",
    ]
    assert onnx.load("out.onnx") == convert(model).model


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("model.tflite", "model.onnx"), ("model.TFLITE", "model.onnx"), ("m.lite", "m.onnx"),
        ("model.v2", "model.v2.onnx"), ("model", "model.onnx"), (".tflite", ".tflite.onnx"),
        ("./ops", "ops.onnx"), ("a b.v1.tflite", "a b.v1.onnx"),
    ],
)  # fmt: skip
def test_the_output_may_be_left_out(model: str, capsys: Captured, name: str, beside: str) -> None:
    os.rename(model, name)
    assert main([name]) == 0
    assert files() == {os.path.basename(name), beside}
    assert f"{beside}, " in capsys.readouterr().out


@pytest.mark.parametrize("words", [["-q", "{}", "o"], ["{}", "-q", "o"], ["{}", "o", "--quiet"]])
def test_quiet_prints_nothing(model: str, capsys: Captured, words: list[str]) -> None:
    """A successful command prints nothing; options may be anywhere on the line."""
    assert main([word.format(model) for word in words]) == 0
    assert capsys.readouterr() == ("", "")
    assert files() == {model, "o"}


def test_quiet_hides_output_of_the_runtimes(model: str) -> None:
    """With --quiet the output of both runtimes is suppressed, too."""
    done = run_program("-q", "--verify", model)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_words_after_a_double_dash_are_file_names(model: str, capsys: Captured) -> None:
    """After a double dash, names that begin with a dash are file names."""
    os.rename(model, "-m.tflite")
    assert main(["-q", "--", "-m.tflite", "-m.onnx"]) == 0
    assert files() == {"-m.tflite", "-m.onnx"}
    assert capsys.readouterr() == ("", "")


def test_verbose_logs_stages_on_stderr(model: str, capsys: Captured) -> None:
    """-v logs the stages on stderr, does not change stdout, and does not affect later calls."""
    main([model])
    summary = capsys.readouterr().out
    assert main(["-v", model]) == 0
    out, err = capsys.readouterr()
    assert out == summary
    stages = [
        "read 2 operators",
        "canonical: 2",
        "chose forms",
        "planned 3080 bytes",
        "emitted 3",
        "wrote",
    ]
    # The lines between the stages say which rules do not apply, and why.
    lines = iter(err.splitlines())
    assert all(any(stage in line for line in lines) for stage in stages)
    logger = logging.getLogger("tflite2onnx")
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)
    assert main([model]) == 0
    assert capsys.readouterr() == (summary, "")


@pytest.mark.parametrize("mode", ["auto", "tflite", "onnx"])
def test_io_layout_option_equals_that_in_python(model: str, mode: IoLayout) -> None:
    """--io-layout gives the same model as the option in Python."""
    assert main(["-q", "--io-layout", mode, model]) == 0
    assert onnx.load("model.onnx") == convert(model, io_layout=mode).model


def test_opset_option_sets_the_opset(model: str) -> None:
    """--opset sets the opset of the model."""
    assert main(["-q", "--opset", "19", model]) == 0
    assert onnx.load("model.onnx").opset_import[0].version == 19


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_layout_file_equals_mapping_in_python(model: str, tmp_path: Path, encoding: str) -> None:
    """--layout reads a JSON file, and gives the same model as the mapping in Python."""
    mapping = {"x": ["NHWC", "NHWC"], "image": ["NHWC", "CNWH"]}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping), encoding)
    assert main(["-q", "--layout", "mapping.json", model]) == 0
    assert onnx.load("model.onnx") == convert(model, layouts=mapping).model


def test_control_characters_in_names_are_escaped(model: str, tmp_path: Path) -> None:
    """Names from the file cannot control the terminal."""
    m = Build()
    name = "x\x1b[31m\r\u202e\u00e9"
    m.output(*m.op("ABS", [m.input([2], name=name)], [m.tensor([2], name="y")]))
    (tmp_path / model).write_bytes(m.bytes())
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-m", "tflite2onnx", model]
    done = subprocess.run(words, capture_output=True, check=True, env={**os.environ, **environment})
    assert done.stdout.splitlines()[0].split()[:2] == [b"input", rb"x\x1b[31m\r\u202e\xe9"]


# Verifying


def test_verify_prints_the_largest_difference_of_each_output(model: str, capsys: Captured) -> None:
    """--verify prints the largest difference of each output before the written file."""
    assert main(["--verify", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].startswith("LiteRT (plain kernels, no delegate) and ONNX Runtime on 2 samples")
    for name, line in zip(("image", "flat"), lines[6:8], strict=True):
        assert line.startswith(f"{name} ".ljust(6))
        assert "largest difference " in line
        assert line.endswith(" dB  right")
    assert lines[8].startswith("instruction sets of this processor: ")
    assert lines[9].startswith("wrote model.onnx")


@pytest.mark.parametrize("quiet", [True, False])
def test_verification_with_a_difference_has_exit_status_2(
    model: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    """A difference gives exit status 2; the file is written, so that the user can inspect it."""
    differences = (
        Difference("image", "float32", 0.5, 10, 0.001),
        Difference("flat", "float32", 0, 10, 0.001),
        Difference("other", "int8", float("inf"), 0, 0, "int8[2] in LiteRT, int8[3] elsewhere"),
    )
    report = Report(differences, 1, 0)
    monkeypatch.setattr("tflite2onnx.verification.verify", lambda *_, **__: report)
    assert main(["--verify", model, *["-q"] * quiet]) == 2
    out, err = capsys.readouterr()
    assert files() == {model, "model.onnx"}
    assert err.splitlines() == [
        f"tflite2onnx: {model}: output image: its difference must be at most 0.001, got 0.5",
        f"tflite2onnx: {model}: output other: int8[2] in LiteRT, int8[3] elsewhere",
    ]
    if quiet:
        assert out == ""
        return
    assert out.splitlines()[-7:-3] == [
        "LiteRT (plain kernels, no delegate) and ONNX Runtime on 1 sample:",
        "image  largest difference 0.5, 0.05 of the range  -inf dB  differs",
        "flat   equal                                               right",
        "other  int8[2] in LiteRT, int8[3] elsewhere                differs",
    ]


@pytest.mark.parametrize("package", ["onnxruntime", "ai_edge_litert.interpreter"])
def test_verifying_without_packages_says_how_to_install_them(
    model: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """Without the packages nothing is written; the message gives the command to install them."""
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install tflite2onnx[verify]" in expect_failure(capsys, ["--verify", model])


# The table of operators


def test_ops_prints_a_row_for_each_operator(capsys: Captured) -> None:
    """`ops` prints a row for each TFLite operator."""
    assert main(["ops"]) == 0
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["operator", "category"]
    assert rows == [[code, OPERATORS[code].category.value] for code in supported_operators()]
    assert ["CONV_2D", "Implicit"] in rows
    assert ["ABS", "Transparent"] in rows
    assert ["TRANSPOSE", "Attribute"] in rows
    assert main(["ops", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [[each["operator"], each["category"]] for each in facts] == rows


def test_word_ops_is_the_command_and_not_a_file(model: str, capsys: Captured) -> None:
    """The word ops is the command, even if a model file has this name."""
    os.rename(model, "ops")
    assert main(["ops"]) == 0
    assert capsys.readouterr().out.startswith("operator")
    assert files() == {"ops"}
    with pytest.raises(SystemExit) as caught:
        main(["ops", "out.onnx"])
    assert caught.value.code == 1
    assert "see tflite2onnx ops --help" in capsys.readouterr().err
    assert main(["./ops", "out.onnx"]) == 0
    assert files() == {"ops", "out.onnx"}


# Help, and wrong usage


def test_version_prints_the_version_of_the_program(capsys: Captured) -> None:
    """--version prints the version of the program."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr() == (f"tflite2onnx {__version__}\n", "")


def test_help_lists_options_and_exit_statuses(capsys: Captured) -> None:
    """--help lists all options and the exit statuses."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    words = ["--io-layout", "--layout", "--opset", "--verify", "-q", "-v", "--version", "./ops"]
    words += ["exit status:", "\n  0 ", "\n  1 ", "\n  2 ", "\n  130 ", "MODEL.tflite", "OUT.onnx"]
    assert all(word in out for word in words)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(
    command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The help of each command is at most 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["help", command])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_help_has_each_option_in_a_group_with_an_example() -> None:
    """Each option of a conversion is in one group, and the example has an option of its group."""
    parser = make_parser("convert")
    options = [name for _, names in GROUPS.values() for name in names]
    assert {field.name for field in fields(ConversionOptions)} <= {*options}
    assert len({*options}) == len(options)
    for group in parser._action_groups[2:]:  # noqa: SLF001 - no public API
        words = str(group.description).split()[2:]
        given = [word for word in words if word.startswith("-")]
        actions = group._group_actions  # noqa: SLF001 - likewise
        spelled = {text for action in actions for text in action.option_strings}
        assert {*given} <= spelled
        assert given
        parser.parse_intermixed_args(words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--input", "data.npy", "--verify"], "; --inputs data.npy cuts the model"),
        (["--input", "x=data.npy"], "with --verify or --report: it gives data to verify on"),
        (["--inputs", "x=model.tflite"], "; --input x=model.tflite gives data to verify on"),
    ],
)
def test_input_and_inputs_name_each_other(
    model: str, capsys: Captured, words: list[str], reason: str
) -> None:
    """--input gives data and --inputs cuts the model: the error of one names the other."""
    assert main([model, *words]) == 1
    assert reason in capsys.readouterr().err
    assert files() == {model}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "MODEL.tflite must be given"),
        (["--verify"], "MODEL.tflite must be given"),
        (
            ["model.tflite", "--io-layout", "NCHW"],
            "must be auto, tflite or onnx, got NCHW",
        ),
        (["model.tflite", "--opset", "many"], "--opset must be a whole number, got many"),
        (["model.tflite", "--veri"], "there is no option --veri; did you mean --verify?; see"),
        (["model.tflite", "--zzz=3"], "there is no option --zzz=3; see"),
        (["model.tflite", "-q", "-v"], "--verbose must be given without --quiet"),
        (["model.tflite", "--layout"], "--layout must be given with a value"),
    ],
)
def test_wrong_usage_has_exit_status_1(
    model: str, capsys: Captured, words: list[str], message: str
) -> None:
    """Wrong usage has exit status 1, because status 2 means that outputs differ."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.startswith("tflite2onnx: ")
    assert err.endswith("; see tflite2onnx --help\n")
    assert err.count("\n") == 1
    assert files() == {model}


# Errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.tflite"], "cannot read none.tflite: No such file or directory"),
        (["."], ". is a folder: give the folder to write to, as -o FOLDER"),
        ([""], "the name of a file must not be empty"),
        (["model.tflite", "model.tflite"],
         "cannot write model.tflite: it is the TFLite model"),
        (["model.tflite", "."], "the folder of the output must be given as -o ., got ."),
        (["model.tflite", ""], "model.tflite: the name of a file must not be empty"),
        (["model.tflite", "none/out.onnx"],
         "model.tflite: cannot write none/out.onnx: No such file or directory"),
        (["model.tflite", "model.tflite/out.onnx"], "Not a directory"),
        (["model.tflite", "/dev/full"],
         "model.tflite: cannot write /dev/full: No space left on device"),
        (["model.tflite", "--opset", "99"], "model.tflite: --opset must be 9 to "),
        (["model.tflite", "--layout", "none.json"],
         "model.tflite: cannot read none.json: No such file or directory"),
        (["model.tflite", "--layout", "."], "model.tflite: --layout must be NAME=NCHW, "),
        (["model.tflite", "--layout", "model.tflite"], "model.tflite must be valid JSON"),
    ],
)  # fmt: skip
def test_error_is_one_paragraph_that_names_the_model(
    model: str, capsys: Captured, words: list[str], message: str
) -> None:
    """An error is one paragraph that names the model and the file."""
    assert model in files()
    assert message in expect_failure(capsys, words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "mapping.json must be valid JSON (Expecting value"),
        ("{", "mapping.json must be valid JSON ("),
        ('{"x": ["NHWC", "NCHW"]', "mapping.json must be valid JSON ("),
        ("[" * 100_000, "mapping.json must be valid JSON ("),
        ("null", "mapping.json must have a mapping such as "),
        ("[]", "mapping.json must have a mapping such as "),
        ("5", "mapping.json must have a mapping such as "),
        ('{"x": "NCHW"}', "layout of x: it must be a pair such as"),
        ('{"x": null}', "layout of x: it must be a pair such as"),
        ('{"x": {"NHWC": "NCHW", "a": "b"}}', "layout of x: it must be a pair such as"),
        ('{"x": ["NHWC", "NCHX"]}', "layout of x: NHWC and NCHX must have the same letters"),
        (
            '{"x": ["NWC", "NCW"]}',
            "layout of x: NWC and NCW must have a letter for each of the tensor's 4 axes",
        ),
        ('{"imag": ["NHWC", "NCHW"]}', "no tensor imag; did you mean image?"),
        ('{"x": ["NHWC", "NCHW"], "x": ["NHWC", "NHWC"]}', "the layout of x must be given once"),
    ],
)
def test_errors_of_layout_files_name_file_or_tensor(
    model: str, capsys: Captured, tmp_path: Path, text: str, message: str
) -> None:
    """Errors in a layout file name the file or the tensor."""
    (tmp_path / "mapping.json").write_text(text)
    words = [model, "--layout", "mapping.json"]
    assert message in expect_failure(capsys, words)


def test_error_names_the_model_once(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the model is not repeated, even if the message itself contains the name."""
    monkeypatch.chdir(tmp_path)
    assert expect_failure(capsys, ["a"]) == "cannot read a: No such file or directory"
    (tmp_path / "a").write_bytes(b"")
    assert expect_failure(capsys, ["a"]) == "a is empty"
    (tmp_path / "a").write_bytes(bytes(100))
    assert expect_failure(capsys, ["a"]).startswith("a: this is not a TFLite model")


@pytest.mark.parametrize("size", [0, 3, 7, 8, 100, 1000, 2000])
def test_error_of_a_truncated_model_names_the_file(
    model: str, capsys: Captured, tmp_path: Path, size: int
) -> None:
    """The error of a truncated model names the file."""
    (tmp_path / model).write_bytes(build_flattening()[:size])
    assert model in expect_failure(capsys, [model])


def test_unsupported_operators_are_listed_without_writing(failing: str, capsys: Captured) -> None:
    """All unsupported operators are listed, and an existing output file is not changed."""
    with open("model.onnx", "wb") as old:
        old.write(b"old")
    head, row = expect_failure(capsys, [failing]).splitlines()
    assert head == "model.tflite: 1 operator cannot be converted:"
    assert row.startswith("  Mystery (operator 0, tensor_1): this custom operator is not supported")
    with open("model.onnx", "rb") as old:
        assert old.read() == b"old"


def test_an_error_of_verifying_leaves_no_file(
    model: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the comparison fails with an error, the model is not written."""
    result = convert(chain("ABS"))
    monkeypatch.setattr(command, "convert", lambda *_, **__: result)
    assert "must be converted from this TFLite model" in expect_failure(capsys, ["--verify", model])


def test_unexpected_exception_is_one_line(
    model: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception is one line; -v prints the traceback."""

    def fail(*_: Any, **__: Any) -> None:
        message = "two\nlines"
        raise KeyError(message)

    monkeypatch.setattr(command, "convert", fail)
    message = expect_failure(capsys, [model])
    assert message == (
        "model.tflite: this is a bug in tflite2onnx; please report it with the output of -v"
        " (KeyError: 'two\\nlines')"
    )
    assert main(["-v", model]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Traceback (most recent call last):")
    assert err.splitlines()[-1] == f"tflite2onnx: {message}"


def test_interrupt_has_exit_status_130(
    model: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt has exit status 130, as in shells, and prints no traceback."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "convert", interrupt)
    assert expect_failure(capsys, [model], status=130) == "model.tflite: interrupted"


@pytest.mark.parametrize(
    ("words", "status"),
    [(["ops"], 0), (["--version"], 0), (["none.tflite"], 1), (["--no"], 1), (["-q", "m"], 0)],
)
def test_python_module_runs_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int
) -> None:
    """`python -m tflite2onnx` has the exit status and the messages of tflite2onnx."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").write_bytes(network())
    monkeypatch.setattr(sys, "argv", ["anything", *words])
    # The program ends its process, which is that of the tests here.
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(atexit, "_run_exitfuncs", lambda: None)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("tflite2onnx", run_name="__main__")
    assert caught.value.code == status
    done = run_program(*words)
    assert done.returncode == status, done.stderr
    assert ("" if status == 0 else "tflite2onnx: ") == done.stderr[:13]


def test_verbose_shortens_long_names(tmp_path: Path, capsys: Captured) -> None:
    """Fused operators have the names of all their parts, hundreds of characters."""
    m = Build()
    name = ";".join(f"network/block_{i}/add" for i in range(20))
    one = m.constant(np.ones(1, np.float32))
    (y,) = m.op("ADD", [m.input([1, 4]), one], [m.tensor([1, 4], name=name)])
    m.output(*m.op("RELU", [y], [[1, 4]]))
    path = tmp_path / "long.tflite"
    path.write_bytes(m.bytes())
    assert main(["-v", str(path)]) == 0
    assert name not in capsys.readouterr().err
