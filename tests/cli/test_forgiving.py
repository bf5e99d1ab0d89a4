"""Habits of users: convert and help as commands, -, completion, Ctrl-C."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
import pytest

from tests.golden.records import ASSETS
from tests.support import Build
from tests.support.small import chain
from tests.test_bundle import archive
from tests.test_signatures import build_signatures
from tflite2onnx import convert, convert_bundle, writer
from tflite2onnx.cli import main
from tflite2onnx.cli.parsers import COMMANDS
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a model to the current directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(chain("ABS"))


def run_program(words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the program in a separate process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tflite2onnx", *words]
    return subprocess.run(command, capture_output=True, check=False, env=environment, **options)


# Commands


def test_convert_is_a_command() -> None:
    """`convert` is a command; a model file of this name is given as ./convert."""
    assert main(["convert", "-q", "model.tflite", "out.onnx"]) == 0
    Path("model.tflite").rename("convert")
    assert main(["-q", "./convert"]) == 0
    assert Path("convert.onnx").read_bytes() == Path("out.onnx").read_bytes()


@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_command_equals_the_help_option(capsys: Captured, command: str | None) -> None:
    """`help` and `help COMMAND` print the same text as --help."""
    words = [] if command is None else [command]
    printed = []
    for line in (["help", *words], [*words, "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(line)
        assert caught.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith(f"usage: tflite2onnx{f' {command}' if command else ''}"[:18])


def test_help_refuses_unknown_commands(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["help", "convrt"])
    assert caught.value.code == 1
    expected = (
        "tflite2onnx: there is no command convrt; did you mean convert?; see tflite2onnx --help\n"
    )
    assert capsys.readouterr().err == expected


def test_typing_error_suggests_the_closest_command(capsys: Captured) -> None:
    """The message suggests the closest command; an existing file of this name is a model."""
    for word, command in (("inpsect", "inspect"), ("verfy", "verify"), ("convrt", "convert")):
        with pytest.raises(SystemExit) as caught:
            main([word, "model.tflite"])
        assert caught.value.code == 1
        expected = f"tflite2onnx: there is no command {word}; did you mean {command}?\n"
        assert capsys.readouterr().err == expected
    Path("model.tflite").rename("inpsect")
    assert main(["inpsect", "-q"]) == 0
    assert main(["vrify.tflite"]) == 1
    assert "cannot read vrify.tflite: No such file" in capsys.readouterr().err


# Standard input and output


@pytest.mark.parametrize(
    ("words", "file"),
    [(["-"], ""), (["-", "-"], ""), (["-", "-o", "-"], ""), (["-", "out.onnx"], "out.onnx")],
)
def test_model_is_read_from_standard_input(words: list[str], file: str) -> None:
    """If the model is written to stdout, the summary is on stderr."""
    done = run_program(words, input=chain("NEG"))
    assert done.returncode == 0, done.stderr
    made = Path(file).read_bytes() if file else done.stdout
    assert onnx.load_from_string(made) == convert(chain("NEG")).model
    assert b"1 node, " in (done.stdout if file else done.stderr)


def test_refuses_standard_input_among_several_models(capsys: Captured) -> None:
    assert main(["model.tflite", "-", "-o", "out"]) == 1
    expected = "tflite2onnx: model.tflite: standard input (-) must be the only model, got 2 models"
    assert capsys.readouterr().err == f"{expected}\n"
    assert not Path("out").exists()


def test_inspect_and_verify_read_standard_input() -> None:
    """`inspect` and `verify` read a model, an ONNX model or a bundle from stdin."""
    model, bundle = chain("NEG"), archive({"a.tflite": chain("ABS")})
    converted = convert(model).skeleton.serialize()
    Path("neg.tflite").write_bytes(model)
    Path("neg.onnx").write_bytes(converted)
    for words, given, told in (
        (["inspect", "-"], model, b"can be converted"),
        (["inspect", "-"], bundle, b"a.tflite:"),
        (["verify", "-"], model, b"1 right"),
        (["verify", "-", "neg.onnx"], model, b"1 right"),
        (["verify", "neg.tflite", "-", "--report", "x.html"], converted, b"1 right"),
        (["verify", "-"], bundle, b"a.tflite:"),
    ):
        done = run_program(words, input=given)
        assert (done.returncode, told in done.stdout) == (0, True), done.stderr
    assert b"<html" in Path("x.html").read_bytes()
    Path("a.task").write_bytes(bundle)
    done = run_program(["verify", "a.task", "-"], input=converted)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"the models of a bundle must be in a folder, got standard input" in done.stderr


def test_model_is_written_to_standard_output() -> None:
    """A model can be written to stdout, with and without --verify."""
    for words in (["model.tflite", "-"], ["-q", "--verify", "model.tflite", "-"]):
        done = run_program(words)
        assert onnx.load_from_string(done.stdout) == convert(chain("ABS")).model
        assert (done.stderr == b"") == ("-q" in words)


def test_bundle_on_standard_input_needs_a_folder() -> None:
    """A bundle on stdin needs an output folder, because it has no name."""
    data = archive({"a.tflite": chain("ABS")})
    done = run_program(["-"], input=data)
    assert done.returncode == 1
    message = b"the output of a bundle on standard input must be given, as -o FOLDER"
    assert message in done.stderr
    assert run_program(["-", "-o", "out"], input=data).returncode == 0
    assert Path("out/a.onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--external-data"], "--external-data must be given with OUT.onnx"),
        (["--report", "x.html"], "--report must be given with OUT.onnx"),
    ],
)
def test_refuses_options_that_need_a_file(capsys: Captured, words: list[str], message: str) -> None:
    assert main(["model.tflite", "-", *words]) == 1
    out, err = capsys.readouterr()
    assert (out, message in err) == ("", True)


@pytest.mark.parametrize("words", [["model.tflite", "-"], ["-", "-"], ["-", "-", "--verify"]])
def test_json_is_on_stderr_beside_model_on_stdout(words: list[str]) -> None:
    """The model is on stdout, and the JSON output on stderr."""
    done = run_program([*words, "--json"], input=chain("ABS"))
    assert done.returncode == 0
    assert onnx.load_from_string(done.stdout).graph.node[0].op_type == "Abs"
    (model,) = json.loads(done.stderr)["models"]
    assert (model["output"], model["nodes"]) == ("-", 1)


def test_refuses_a_bundle_on_standard_output(capsys: Captured) -> None:
    Path("a.task").write_bytes(archive({"a.tflite": chain("ABS")}))
    assert main(["a.task", "-"]) == 1
    assert "the output of a bundle must be a folder" in capsys.readouterr().err


def test_refuses_a_model_on_a_terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["model.tflite", "-"]) == 1
    assert "cannot write a model to the terminal; give OUT.onnx" in capsys.readouterr().err


def test_refuses_a_large_model_on_standard_output(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tflite2onnx.cli.standard_streams.LARGEST_FILE", 10)
    assert writer.LARGEST_FILE > 10
    assert main(["model.tflite", "-"]) == 1
    assert "above 2 GB" in capsys.readouterr().err


# Completion


COMPLETE = """
eval "$("$1" -m tflite2onnx completion bash)"
shift
COMP_WORDS=(tflite2onnx "$@"); COMP_CWORD=$#; COMP_LINE="tflite2onnx $*"; COMP_POINT=${#COMP_LINE}
_shtab_tflite2onnx; echo "${COMPREPLY[*]}"
"""


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (["mod"], "model.tflite"),
        (["ver"], "verify"),
        (["verify", "mod"], "model.tflite"),
        (["model.tflite", "--io-l"], "--io-layout"),
        (["convert", "--weights", "u"], "uint8"),
        (["model.tflite", "--weights", "u"], "uint8"),
        (["help", "ins"], "inspect"),
        (["completion", "z"], "zsh"),
        (["model.tflite", "-o", "mod"], "model.tflite"),
    ],
)
def test_completion_knows_commands_options_and_files(words: list[str], want: str) -> None:
    """Shell completion knows commands, options, values of options and files."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["bash", "-c", COMPLETE, "bash", sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [want]


@pytest.mark.parametrize("shell", ["zsh", "tcsh", "fish"])
def test_zsh_tcsh_and_fish_have_completion(capsys: Captured, shell: str) -> None:
    assert main(["completion", shell]) == 0
    assert "io-layout" in capsys.readouterr().out


def test_fish_completion_has_a_line_for_each_option(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each option of each command has a line, without the package of other shells."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "fish"]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    found = {
        (line[4], line[line.index("--long-option") + 1]) for line in lines if "--long" in str(line)
    }
    own = ("ops", "verify", "inspect", "completion")
    assert {(f"__fish_seen_subcommand_from {name}", "json") for name in own[:3]} < found
    assert (
        f"not __fish_seen_subcommand_from {' '.join(COMMANDS[1:])} help",
        "weights",
    ) in found
    (weights,) = (line for line in lines if "weights" in line)
    assert weights[weights.index("--arguments") + 1] == "auto adaptive int8 uint8 float"
    assert weights[-2:] == ["--description", "the type of 8-bit weights"]
    (tolerance, _) = (line for line in lines if "tolerance" in line)
    assert "--require-parameter" in tolerance
    assert ["--arguments", "bash zsh tcsh fish"] in [line[-4:-2] for line in lines]


def test_completion_says_how_to_install_its_package(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert "pip install tflite2onnx[completion]" in capsys.readouterr().err


# Bundles of which some models have no signature


def test_models_without_signature_keep_tensor_names(capsys: Captured) -> None:
    """Models without a signature keep their tensor names, and a note says so."""
    data = archive({"plain.tflite": chain("ABS"), "several.tflite": build_signatures()})
    Path("a.task").write_bytes(data)
    assert main(["a.task", "out", "--names", "signature"]) == 0
    assert "plain.tflite has no signature: its inputs and" in capsys.readouterr().err
    results = convert_bundle(data, "out", names="signature")
    assert [r.inputs[0].name for r in results.values()] == ["x", "in", "in"]
    with pytest.raises(ConversionError, match="`signature` must not be given"):
        convert_bundle(archive({"plain": chain()}), "out", names="signature", signature="size")


# Output


def test_error_has_one_line_for_each_operator_type(capsys: Captured) -> None:
    """The error has one line for each type of operator, not for each operator."""
    m = Build()
    x = m.input([2])
    for _ in range(200):
        (x,) = m.custom("Mystery", [x], [[2]])
    for _ in range(88):
        (x,) = m.custom("Riddle", [x], [[2]])
    m.output(x)
    Path("model.tflite").write_bytes(m.bytes())
    assert main(["model.tflite"]) == 1
    head, first, second = capsys.readouterr().err.splitlines()
    assert head == "tflite2onnx: model.tflite: 288 operators cannot be converted:"
    assert first.startswith("  Mystery (operator 0, tensor_1, and 199 more): this custom operator")
    assert second.startswith("  Riddle (operator 200, tensor_201, and 87 more): this custom")


def test_error_lists_ten_reasons_for_each_operator_type() -> None:
    """The error lists up to 10 reasons for each type of operator, and counts the rest."""
    from tflite2onnx.errors import OperatorError, UnsupportedOperators  # noqa: PLC0415 - one test

    problems = [OperatorError(f"reason {i % 12}", f"ABS (operator {i}, y)") for i in range(24)]
    assert str(UnsupportedOperators([*problems, OperatorError("no place")])).splitlines() == [
        "25 operators cannot be converted:",
        *(f"  ABS (operator {i}, y, and 1 more): reason {i}" for i in range(10)),
        "  ABS: 4 more operators, for other reasons", "  no place",
    ]  # fmt: skip


@pytest.mark.parametrize("quiet", [False, True])
def test_messages_of_litert_are_hidden(*, quiet: bool) -> None:
    """LiteRT's library prints on stderr that it created a delegate, which is hidden."""
    path = str(ASSETS / "mobilenet_float32.tflite")
    done = run_program([*["-q"] * quiet, "--report", "a.html", path, "a.onnx"])
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) != quiet
    assert (b"\nwrote a.html\n" in done.stdout) != quiet


# Ctrl-C


SLOW = "import sys, time\nopen('loading', 'w').close()\ntime.sleep({})\nsys.exit(7)\n"


@contextmanager
def dispose_interrupts(handler: Any) -> Iterator[None]:
    """Choose the disposition of SIGINT that programs started here inherit.

    A shell starts the programs in the background of a script so that they ignore interrupts.
    """
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt_loading(package: str, words: Sequence[str], seconds: float) -> tuple[int, bytes, str]:
    """Interrupt the program while it imports a package; return its exit status and output.

    Without an interrupt the exit status is 7 after some seconds.
    """
    Path("slow", package).mkdir(parents=True)
    Path("slow", package, "__init__.py").write_text(SLOW.format(seconds))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["slow", *sys.path])}
    command = [sys.executable, "-m", "tflite2onnx", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        while not Path("loading").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


@pytest.mark.parametrize("package", ["numpy", "onnx"])
@pytest.mark.parametrize("words", [["model.tflite"], ["verify", "model.tflite"], ["--help"]])
def test_interrupt_while_modules_load_is_one_line(package: str, words: list[str]) -> None:
    """Ctrl-C during the imports prints one line, and has the exit status of shells."""
    with dispose_interrupts(signal.default_int_handler):
        done = interrupt_loading(package, words, 60)
    assert done == (130, b"", "tflite2onnx: interrupted\n")


def test_ignored_interrupts_stay_ignored() -> None:
    """A program in the background of a script ignores interrupts, as the shell has arranged."""
    with dispose_interrupts(signal.SIG_IGN):
        assert interrupt_loading("onnx", ["model.tflite"], 0.5) == (7, b"", "")


def test_library_does_not_change_the_handler_of_interrupts() -> None:
    """Only the program changes the handler of SIGINT, not the library."""
    code = (
        "import signal; before = signal.getsignal(2); import tflite2onnx;"
        "print(signal.getsignal(2) is before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "True\n"


def test_interrupt_before_a_command_has_exit_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """An interrupt before the command starts has the same exit status."""
    from tflite2onnx import cli  # noqa: PLC0415 - one test

    def interrupt() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupt)
    monkeypatch.setattr(sys, "argv", ["tflite2onnx"])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert cli.entry() == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "tflite2onnx: interrupted\n"
