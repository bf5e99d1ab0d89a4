"""The command line: run a command, and print an error on stderr in one paragraph."""

import argparse
import atexit
import gc
import logging
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tflite2onnx.cli.arguments.verification import spell_options
from tflite2onnx.cli.parsers import COMMANDS, UsageError, make_parser, suggest_command
from tflite2onnx.errors import ConversionError
from tflite2onnx.utils.child_process import CAN_FORK, exit_at_once, run_in_child
from tflite2onnx.utils.console import (
    describe_bug,
    describe_record,
    handle_records,
    print_error,
    print_json,
    print_lines,
)
from tflite2onnx.utils.interrupts import raise_on_interrupt
from tflite2onnx.utils.standard_output import check_open, report_unprinted
from tflite2onnx.utils.suggestions import suggest_names

_FAILED, _INTERRUPTED = 1, 130
_LISTS = ("ops", "completion")  # commands that print without --json, and in spite of --quiet


def run_program() -> NoReturn:
    """Run the command line, and end the process with the exit status."""
    gc.freeze()  # a collection would search all imported modules
    gc.enable()  # `tflite2onnx/__init__.py` disables it
    try:
        status = entry()
    except SystemExit as error:  # of argparse: --help, and wrong usage
        status = int(error.code or 0)
    atexit._run_exitfuncs()  # noqa: SLF001 - of packages with classes of operators
    exit_at_once(status)


def entry() -> int:
    """Run the command line as a program, and return the exit status.

    Commands that run LiteRT do so in a child process, so that a crash is reported as an error. With
    some published models, the kernels of LiteRT write out of bounds.
    """
    _reopen_streams()
    runs_litert = sys.argv[1:2] == ["verify"] or {"--verify", "--report"} & {
        word.partition("=")[0] for word in sys.argv[1:]
    }
    with raise_on_interrupt():
        try:
            return _exit_status(run_in_child(main)) if runs_litert and CAN_FORK else main()
        except KeyboardInterrupt:  # an interrupt before or after the command itself
            print_lines(sys.stderr, ["tflite2onnx: interrupted"])
            return _INTERRUPTED


def _reopen_streams() -> None:
    """Replace closed standard streams by os.devnull: a file would get their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - it stays open
            setattr(sys, name, nowhere)


def _exit_status(status: int) -> int:
    """Return the exit status of a process, 1 if a signal ended the process."""
    if status >= 0:
        return status
    ended_by = signal.Signals(-status).name
    name, options = _read_arguments(sys.argv[1:])
    _print_failure(name, options, f"cannot verify: LiteRT or ONNX Runtime crashed ({ended_by})")
    return _FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; wrong usage raises SystemExit(1)."""
    name, options = _read_arguments(list(sys.argv[1:] if argv is None else argv))
    command = import_module(f"tflite2onnx.cli.{name}")
    try:
        _check_stdout(name, options)
        with _log_to_stderr(options):
            status = int(command.run_command(options))
        sys.stdout.flush()
    except ConversionError as error:
        _print_failure(name, options, spell_options(str(error)))
    except KeyboardInterrupt:
        print_error(getattr(options, "model", name), "interrupted")
        return _INTERRUPTED
    except OSError as error:  # most errors of files are ConversionErrors
        if error.filename is None:  # stdout is full or closed
            return report_unprinted(error)
        reason = f"cannot use {error.filename}: {error.strerror}"  # a name that is too long
        _print_failure(name, options, reason)
    except Exception as error:  # noqa: BLE001 - a traceback is for --verbose only
        if options.verbose:
            traceback.print_exc()
        _print_failure(name, options, describe_bug(error))
    else:
        return status
    return _FAILED


def _check_stdout(name: str, options: argparse.Namespace) -> None:
    """Raise OSError if stdout is closed, and a command is run for what it prints."""
    writes_file = name == "convert"
    if name in _LISTS or options.json or not (writes_file or options.quiet):
        check_open()


def _read_arguments(words: list[str]) -> tuple[str, argparse.Namespace]:
    """Return the command and its options; print what is wrong, and raise UsageError."""
    name, options = "convert", argparse.Namespace()
    try:
        if words[:1] == ["help"]:
            words = _make_help_arguments(words[1:])
        for word in words[:1]:
            _check_command(word)
        if words and words[0] in COMMANDS:
            name, *words = words
        parser = make_parser(name)
        parser.refuse_foreign_words(words)
        # Options may be between files. Python 3.11 parses either these or "--", not both.
        parse = parser.parse_args if "--" in words else parser.parse_intermixed_args
        parse(words, options)
    except UsageError as error:
        print_lines(sys.stderr, [f"{error.program}: {error.message}"])
        options.json = "--json" in words
        _print_failure_as_json(name, options, error.message)
        raise
    return name, options


def _print_failure(name: str, options: argparse.Namespace, message: str) -> None:
    """Print the error of a command on stderr, and with --json as JSON, too."""
    print_error(getattr(options, "model", name), message)
    _print_failure_as_json(name, options, message)


def _print_failure_as_json(name: str, options: argparse.Namespace, message: str) -> None:
    if getattr(options, "json", False):
        from tflite2onnx.cli.standard_streams import find_text_stream  # noqa: PLC0415 - slow

        model = getattr(options, "model", None)  # unknown after wrong words before it
        failure = {"error": message} if model is None else {"model": model, "error": message}
        summary = {"converted": 0, "failed": 1, "models": [failure]}
        with suppress(OSError):  # stdout is full, or a pipe without a reader
            stream = find_text_stream(options)
            print_json(summary if name == "convert" else failure, stream)
            stream.flush()


def _make_help_arguments(words: Sequence[str]) -> list[str]:
    """Return the command line that prints the help of a command, by default of the program."""
    if words and words[0] not in (*COMMANDS, "help"):
        hint = suggest_names(words[0], COMMANDS)
        raise UsageError(f"there is no command {words[0]}{hint}; see tflite2onnx --help")
    for word in (each for each in words[1:] if not each.startswith("-")):
        raise UsageError(f"the argument {word} must be left out; see tflite2onnx --help")
    return [*(word for word in words if word in COMMANDS), "--help"]


def _check_command(word: str) -> None:
    """Raise UsageError if the first word is no command or file, but is spelled like a command."""
    other = word in COMMANDS or word.startswith("-") or "." in word or Path(word).exists()
    hint = "" if other else suggest_command(word)
    if hint:
        raise UsageError(f"there is no command {word}{hint}")


@contextmanager
def _log_to_stderr(options: argparse.Namespace) -> Iterator[None]:
    """Print log records on stderr: warnings, each stage if verbose, only errors if quiet.

    A warning is printed once: `verify` reads a model several times, and converts it again to see
    the tensors between the operators.
    """
    warnings = set[str]()

    def show(record: logging.LogRecord) -> None:  # names in a file may contain any characters
        if record.levelno == logging.WARNING:
            if record.getMessage() in warnings:
                return
            warnings.add(record.getMessage())
        start = f"{record.relativeCreated:6.0f} ms " if options.verbose else "tflite2onnx:"
        print_lines(sys.stderr, [f"{start} {spell_options(describe_record(record))}"])

    with handle_records(show) as logger:
        if options.verbose or options.quiet:
            logger.setLevel(logging.DEBUG if options.verbose else logging.ERROR)
        yield
