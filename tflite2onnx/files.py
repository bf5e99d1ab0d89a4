"""Files that are written: whole or not at all, and never over what is read."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tflite2onnx.errors import OutputError


def keep_apart(
    path: str | os.PathLike[str], other: str | os.PathLike[str], what: str = "the TFLite model"
) -> None:
    """Raise OutputError if a file to be written is another one, which `what` says."""
    try:
        # Of two that are not there yet the paths say whether they will be one.
        same = os.path.realpath(path) == os.path.realpath(other)
        same = same or os.path.samefile(path, other)  # noqa: PTH121 - they may be any os.PathLike
    except (OSError, ValueError):  # one of them is not there; said when it is read or written
        return
    if same:
        message = f"cannot write {os.fspath(path)}: it is {what} itself"
        raise OutputError(message)


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the file that a path leads to; what the system says against it is an OutputError."""
    try:
        yield Path(os.path.realpath(path))  # what a symbolic link points to is replaced
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"cannot write {os.fspath(path)}: {reason}"
        raise OutputError(message) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when all went well.

    What is no regular file, such as /dev/null, is written to and stays what it is.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".tflite2onnx-{os.urandom(8).hex()}")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
