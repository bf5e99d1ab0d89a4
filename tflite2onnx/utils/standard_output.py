"""Whether stdout takes text, and the one line that says why not."""

import errno
import os
import sys
from typing import TextIO

_FAILED = 1


def print_or_exit(text: str) -> None:
    """Print a text; if stdout is closed or full, say so, and raise SystemExit(1)."""
    try:
        check_open()
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise SystemExit(report_unprinted(error)) from None


def check_open() -> None:
    """Raise OSError if stdout is closed."""
    if is_closed(sys.stdout):
        raise OSError(errno.EBADF, "stdout is closed")


def is_closed(stream: TextIO | None) -> bool:
    """Return whether a stream was closed when the program began: `os.devnull` may stand for it."""
    return stream is None or getattr(stream, "name", None) == os.devnull


def report_unprinted(error: OSError) -> int:
    """Say on stderr why stdout takes no text, and return the exit status.

    Nothing is said if the reader of a pipe has ended, as in `tflite2onnx ops | head`.
    """
    discard_stdout()
    if sys.stderr is not None and not isinstance(error, BrokenPipeError):
        sys.stderr.write(f"tflite2onnx: cannot print: {error.strerror}\n")
    return _FAILED


def discard_stdout() -> None:
    """Send what was not written to stdout, and what follows, nowhere.

    The interpreter would write it again at its end, and fail.
    """
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
