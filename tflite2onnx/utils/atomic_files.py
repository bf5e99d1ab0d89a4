"""Atomic writes: all files are written completely or none is, and no input is overwritten."""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, NamedTuple

from tflite2onnx.errors import OutputError

# A folder in which nothing can be made.
_REFUSED = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS)
Create = Callable[[Path], BinaryIO]


def check_distinct_files(
    path: str | os.PathLike[str], other: str | os.PathLike[str], role: str = "the TFLite model"
) -> None:
    """Raise OutputError if an output path leads to another file; `role` names that file."""
    try:
        # The paths are compared too, because files that do not exist yet have no identity.
        is_same = os.path.realpath(path) == os.path.realpath(other)
        is_same = is_same or os.path.samefile(path, other)  # noqa: PTH121 - they may be any os.PathLike
    except (OSError, ValueError):  # a file is missing; the error comes when it is read or written
        return
    if is_same:
        raise OutputError(f"cannot write {os.fspath(path)}: it is {role}")


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """Return a path without symbolic links: a write replaces the target; OSError for circles."""
    target = Path(os.path.realpath(path))
    # Only circular links are still links.
    if any(place.is_symlink() for place in (target, *target.parents)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextlib.contextmanager
def resolve_target(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the resolved path; errors of the system inside the block become an OutputError."""
    try:
        yield resolve_path(path)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"cannot write {os.fspath(path)}: {explain_failure(path, error)}"
        ) from error


def explain_failure(path: str | os.PathLike[str], error: OSError | ValueError) -> str:
    """Return why a file cannot be written, and what to do."""
    reason, number = getattr(error, "strerror", None) or error, getattr(error, "errno", None)
    folder = Path(path).parent
    for place in (each for each in Path(path).parents if each.is_file()):
        return f"{reason}; {place} is a file"
    failed = getattr(error, "filename", None)  # in a folder that exists, if folders are made
    if number == errno.ENAMETOOLONG:
        return f"{reason}; choose a shorter name, also of a file in a bundle"
    if not folder.exists() and not (failed and Path(failed).parent.exists()):
        return f"{reason}; make the folder {folder} first"
    if number == errno.ENOENT:  # a file system of the kernel, such as /proc
        reason = "no file can be made there"
    return f"{reason}; choose another folder" if number in _REFUSED else str(reason)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OutputError if a file cannot be written; nothing is written."""
    with resolve_target(path) as target:
        if not target.is_fifo():  # its reader would see the end of the file
            _remove([_open_new(target, folders=False)])


@contextlib.contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` if the block succeeds; see `replace_all_atomically`."""
    with replace_all_atomically() as create:
        yield create(path)


@contextlib.contextmanager
def replace_all_atomically(*, folders: bool = False) -> Iterator[Create]:
    """Yield a function that opens new files, which replace their targets if the block succeeds.

    The file that was opened last replaces its target first. If a target cannot be replaced, all
    targets are restored. Before that a file has no name, if the system supports unnamed files, and
    vanishes with the process; otherwise it has a temporary name. Missing `folders` are created.
    A target that is not a regular file, such as /dev/null, is written to directly.
    """
    files: list[_New] = []

    def create(path: Path) -> BinaryIO:
        files.append(_open_new(path, folders=folders))
        if files[-1].name is not None:
            ending.enter_context(_remove_on_signal(files))
        return files[-1].file

    with contextlib.ExitStack() as ending:
        ending.callback(_remove, files)
        yield create
        for new in files:
            new.file.flush()
        _replace_all([new for new in files if new.is_regular])


class _New(NamedTuple):
    """A new file that will replace `path`; an unnamed file has None as its name."""

    file: BinaryIO
    path: Path
    name: Path | None = None
    is_regular: bool = True


def _remove(files: Sequence[_New]) -> None:
    """Close all files, and remove the files with temporary names."""
    for new in files:
        with contextlib.suppress(OSError):
            new.file.close()
        if new.name is not None:
            new.name.unlink(missing_ok=True)


@contextlib.contextmanager
def _remove_on_signal(files: Sequence[_New]) -> Iterator[None]:
    """Remove files with temporary names if an otherwise unhandled signal ends the process."""
    before: dict[int, Any] = {}

    def end_program(number: int, _: FrameType | None) -> None:
        _remove(files)
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with contextlib.suppress(ValueError):  # only the main thread may install signal handlers
        for number in numbers:
            handler = signal.getsignal(number)
            if handler is signal.SIG_DFL or getattr(handler, "__module__", "") == __name__:
                before[number] = signal.signal(number, end_program)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_new(path: Path, *, folders: bool) -> _New:
    """Open a new file that will replace `path`."""
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
    name = _make_temporary_name(folder)
    return _New(name.open("xb"), path, name)


def _open_unnamed(folder: Path) -> BinaryIO | None:
    """Open an unnamed file; None if the system or the file system does not support that."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        number = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666)
    except OSError:
        return None
    if os.path.lexists(_link(number)):
        return os.fdopen(number, "wb")
    os.close(number)  # without /proc no link can name the file later
    return None


def _link(number: int) -> str:
    return f"/proc/self/fd/{number}"


def _make_temporary_name(folder: Path) -> Path:
    return folder / f".tflite2onnx-{os.urandom(8).hex()}"


def _replace_all(files: Sequence[_New]) -> None:
    """Replace all targets, beginning with the last, or none of them."""
    old_files = []
    with contextlib.ExitStack() as undo:
        for new in reversed(files):
            for folder in reversed([p for p in new.path.parents if not p.exists()]):
                folder.mkdir()
                undo.callback(folder.rmdir)
            if new is files[0]:  # no later step can fail
                _name_file(new)
            elif new.path.exists():
                old_files.append(_link_temporarily(new.path))
                undo.callback(old_files[-1].replace, new.path)
                _name_file(new)
            else:
                _name_file(new)
                undo.callback(new.path.unlink)
        undo.pop_all()
    for old in old_files:
        old.unlink()


def _link_temporarily(path: Path) -> Path:
    """Give a file a second, temporary name, and return it."""
    name = _make_temporary_name(path.parent)
    if path.is_dir():  # another program may have made a folder meanwhile
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    try:
        name.hardlink_to(path)
    except OSError:  # the file system has no hard links
        path.replace(name)
    return name


def _name_file(new: _New) -> None:
    """Give a new file its name, even if another file has the name meanwhile."""
    if new.name is not None:
        new.file.close()
        new.name.replace(new.path)
        return
    number = new.file.fileno()
    with contextlib.suppress(FileExistsError):
        # Linux follows the link in /proc only if src_dir_fd is given.
        os.link(_link(number), new.path, src_dir_fd=number)
        return
    name = _make_temporary_name(new.path.parent)
    os.link(_link(number), name, src_dir_fd=number)
    try:
        name.replace(new.path)
    except OSError:
        name.unlink()
        raise
