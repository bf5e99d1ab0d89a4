"""Standard streams: models on stdin and stdout, and stderr without the INFO lines of LiteRT."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tflite2onnx.cli.places import STANDARD
from tflite2onnx.errors import OutputError
from tflite2onnx.result import Result
from tflite2onnx.utils.console import filter_stderr
from tflite2onnx.writer import LARGEST_FILE


def read_source(path: str) -> str | bytes:
    """Return the path of a file, or the bytes of standard input if the path is -."""
    return sys.stdin.buffer.read() if path == STANDARD else path


def write_standard_output(result: Result) -> int:
    """Write a model to standard output; return the number of bytes.

    Raises:
        OutputError: standard output is a terminal, or the model is too large for one file.
    """
    if sys.stdout.isatty():
        raise OutputError("cannot write a model to the terminal; give OUT.onnx")
    if result.size > LARGEST_FILE:
        raise OutputError(
            "a model above 2 GB needs two files, and cannot be written to standard output"
        )
    written = sys.stdout.buffer.write(result.skeleton.serialize())
    sys.stdout.buffer.flush()
    return written


@contextmanager
def hide_information(*, hidden: bool, everything: bool = False) -> Iterator[None]:
    """Drop the lines on stderr that begin with INFO, which LiteRT's library writes directly.

    All other lines are written at the end, unless `everything` is hidden.
    """
    if not hidden:
        yield
        return
    sys.stderr.flush()
    with filter_stderr(lambda line: not (everything or line.startswith(b"INFO: "))):
        try:
            yield
        finally:
            sys.stderr.flush()
