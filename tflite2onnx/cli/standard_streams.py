"""Standard streams: models on stdin and stdout, and stderr without the INFO lines of LiteRT."""

import argparse
import sys
from collections.abc import Iterable
from typing import TextIO

from tflite2onnx.cli.places import STANDARD, STANDARD_OUTPUTS
from tflite2onnx.errors import ModelFileError, OutputError
from tflite2onnx.result import Result
from tflite2onnx.utils.console import TextTable, print_lines
from tflite2onnx.utils.standard_output import discard_stdout, is_closed
from tflite2onnx.writer import LARGEST_FILE


def read_source(path: str) -> str | bytes:
    """Return the path of a file, or the bytes of standard input if the path is -.

    Raises:
        ModelFileError: standard input is a terminal, is closed or empty, or cannot be read.
    """
    if path != STANDARD:
        return path
    if is_closed(sys.stdin):
        raise ModelFileError("cannot read the model: stdin is closed; give its file")
    if sys.stdin.isatty():
        raise ModelFileError("cannot read a model from the terminal; give its file")
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        raise ModelFileError(f"cannot read the model from stdin: {error.strerror}") from error
    if not data:
        raise ModelFileError("standard input is empty")
    return data


def find_text_stream(options: argparse.Namespace) -> TextIO:
    """Return the stream of text and JSON: stderr if a command line writes a model to stdout."""
    if not hasattr(options, "others"):  # only conversions have outputs
        return sys.stdout
    # Without -o the second of two files is the output, see `split_files`.
    outputs = options.others if options.output is None else [options.output]
    return sys.stderr if (outputs or [options.model])[-1] in STANDARD_OUTPUTS else sys.stdout


def print_unless_quiet(options: argparse.Namespace, lines: Iterable[str | TextTable]) -> None:
    """Print lines for people, with neither --quiet nor --json."""
    if not (options.quiet or options.json):
        print_lines(find_text_stream(options), lines, wide=options.wide)


def write_standard_output(result: Result) -> int:
    """Write a model to standard output; return the number of bytes.

    Raises:
        OutputError: standard output is a terminal, is closed or full, or the model is too large for
            one file.
    """
    if is_closed(sys.stdout):
        raise OutputError("cannot write the model: stdout is closed; give OUT.onnx")
    if sys.stdout.isatty():
        raise OutputError("cannot write a model to the terminal; give OUT.onnx")
    if result.size > LARGEST_FILE:
        raise OutputError(
            "a model above 2 GB needs two files, and cannot be written to standard output"
        )
    try:
        left = memoryview(result.skeleton.serialize())
        written = len(left)
        while left:  # a stream without a buffer (PYTHONUNBUFFERED) may write a part
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()
    except OSError as error:
        discard_stdout()
        raise OutputError(f"cannot write the model to stdout: {error.strerror}") from error
    return written
