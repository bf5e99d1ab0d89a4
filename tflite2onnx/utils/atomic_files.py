"""Files that are written: all of them whole or none at all, and never over what is read."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from tflite2onnx.errors import OutputError

Create = Callable[[Path], BinaryIO]


def check_distinct_files(
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
        raise OutputError(f"cannot write {os.fspath(path)}: it is {what} itself")


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path leads to; what a symbolic link points to is replaced.

    Raises:
        OSError: symbolic links lead back to themselves.
    """
    target = Path(os.path.realpath(path))
    if any(place.is_symlink() for place in (target, *target.parents)):  # which nothing resolves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextlib.contextmanager
def target_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the file that a path leads to; what the system says against it is an OutputError."""
    try:
        yield resolve_path(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write {os.fspath(path)}: {reason}") from error


@contextlib.contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when all went well; see `replacing_all`."""
    with replacing_all() as create:
        yield create(path)


@contextlib.contextmanager
def replacing_all(*, folders: bool = False) -> Iterator[Create]:
    """Give a function that opens new files, which take their places when all went well.

    The file that was opened last takes its place first. If one cannot, all places are as they were
    before. Until then a file has no name, on a system with such files, and vanishes with the
    process; else it has a temporary name. `folders` that are missing are made. What is no regular
    file, such as /dev/null, is written to and stays what it is.
    """
    files: list[_New] = []

    def create(path: Path) -> BinaryIO:
        files.append(_new(path, folders=folders))
        if files[-1].name is not None:
            ending.enter_context(_removing(files))
        return files[-1].file

    with contextlib.ExitStack() as ending:
        ending.callback(_remove, files)
        yield create
        for new in files:
            new.file.flush()
        _put_all([new for new in files if new.is_regular])


class _New(NamedTuple):
    """A file that shall take the place of `path`; None is the name of an unnamed one."""

    file: BinaryIO
    path: Path
    name: Path | None = None
    is_regular: bool = True


def _remove(files: Sequence[_New]) -> None:
    """Close all files, and remove what has a temporary name."""
    for new in files:
        with contextlib.suppress(OSError):
            new.file.close()
        if new.name is not None:
            new.name.unlink(missing_ok=True)


@contextlib.contextmanager
def _removing(files: Sequence[_New]) -> Iterator[None]:
    """Remove what has a temporary name if a signal ends the process that nobody else handles."""
    before: dict[int, Any] = {}

    def end(number: int, _: FrameType | None) -> None:
        _remove(files)
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with contextlib.suppress(ValueError):  # only the main thread can
        for number in numbers:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL or getattr(handler, "__module__", "") == __name__:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _new(path: Path, *, folders: bool) -> _New:
    """Open a new file for a place."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    if path.exists() and not path.is_file():
        return _New(path.open("wb"), path, is_regular=False)
    folder = next(p for p in path.parents if p.exists()) if folders else path.parent
    file = _open_unnamed(folder)
    if file is not None:
        return _New(file, path)
    name = _temporary_name(folder)
    return _New(name.open("xb"), path, name)


def _open_unnamed(folder: Path) -> BinaryIO | None:
    """Open a file without a name, None if the system or the file system has no such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        number = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None
    if os.path.lexists(_link(number)):
        return os.fdopen(number, "wb")
    os.close(number)  # without /proc no name can be given to it
    return None


def _link(number: int) -> str:
    return f"/proc/self/fd/{number}"


def _temporary_name(folder: Path) -> Path:
    """Return a temporary name."""
    return folder / f".tflite2onnx-{os.urandom(8).hex()}"


def _put_all(files: Sequence[_New]) -> None:
    """Put all files in their places, the last one first, or none."""
    olds = []
    with contextlib.ExitStack() as undo:
        for new in reversed(files):
            for folder in reversed([p for p in new.path.parents if not p.exists()]):
                folder.mkdir()
                undo.callback(folder.rmdir)
            if new is files[0]:  # nothing comes after it
                _name_file(new)
            elif new.path.exists():
                olds.append(_link_aside(new.path))
                undo.callback(olds[-1].replace, new.path)
                _name_file(new)
            else:
                _name_file(new)
                undo.callback(new.path.unlink)
        undo.pop_all()
    for old in olds:
        old.unlink()


def _link_aside(path: Path) -> Path:
    """Give a file a further name, and return that."""
    name = _temporary_name(path.parent)
    if path.is_dir():  # by now
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        name.hardlink_to(path)
    except OSError:  # the file system knows only one name of a file
        path.replace(name)
    return name


def _name_file(new: _New) -> None:
    """Give a file its name, which may be that of another by now."""
    if new.name is not None:
        new.file.close()
        new.name.replace(new.path)
        return
    number = new.file.fileno()
    with contextlib.suppress(FileExistsError):
        os.link(_link(number), new.path, src_dir_fd=number)  # which makes it follow the link
        return
    name = _temporary_name(new.path.parent)
    os.link(_link(number), name, src_dir_fd=number)
    try:
        name.replace(new.path)
    except OSError:
        name.unlink()
        raise
