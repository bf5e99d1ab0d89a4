"""Several files are replaced together or not at all, even if the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tflite2onnx.errors import OutputError
from tflite2onnx.utils import atomic_files

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


@pytest.fixture(params=["unnamed", "named", "no /proc", "no links"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Patch) -> Path:
    """Return an empty folder, with and without optional features of the operating system."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif request.param == "no /proc":
        monkeypatch.setattr(atomic_files, "_link", lambda number: f"/nowhere/{number}")
    elif request.param == "no links":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)

        def refuse(*_: object) -> None:
            raise PermissionError

        monkeypatch.setattr(Path, "hardlink_to", refuse)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes | None]:
    """Return the contents of a folder, with None for folders."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def write(folder: Path, *names: str) -> None:
    """Write new files."""
    with atomic_files.replace_all_atomically(folders=True) as create:
        for name in names:
            create(folder / name).write(b"new")


def test_new_and_old_files_are_written_together(folder: Path) -> None:
    (folder / "old").write_bytes(b"old")
    (folder / "older").write_bytes(b"older")
    write(folder, "older", "a/b/made", "old", "a/made", "made")
    made = dict.fromkeys(("old", "older", "a/b/made", "a/made", "made"), b"new")
    assert contents(folder) == made | {"a": None, "a/b": None}


@pytest.mark.parametrize("last", ["made/x", "folder"])
def test_no_file_is_replaced_if_one_cannot_be_placed(folder: Path, last: str) -> None:
    """If one file cannot be placed, no file is replaced and new folders are removed."""
    (folder / "old").write_bytes(b"old")

    def fill() -> None:
        with atomic_files.replace_all_atomically(folders=True) as create:
            for name in (last, "old", "a/b/c", "made"):
                create(folder / name).write(b"new")
            if last == "folder":
                (folder / last).mkdir()

    with pytest.raises((NotADirectoryError, IsADirectoryError, FileExistsError)):
        fill()
    left = {"folder": None} if last == "folder" else {}
    assert contents(folder) == {"old": b"old"} | left


def test_failure_while_writing_changes_no_file(folder: Path) -> None:
    (folder / "old").write_bytes(b"old")

    def fill() -> None:
        with atomic_files.replace_all_atomically(folders=True) as create:
            create(folder / "old").write(b"new")
            create(folder / "a/new").write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill()
    assert contents(folder) == {"old": b"old"}


def test_target_of_a_link_is_replaced_and_loops_refused(folder: Path) -> None:
    """The target of a link is replaced; a circular link is an error."""
    (folder / "link").symlink_to(folder / "there")
    (folder / "one").symlink_to(folder / "other")
    (folder / "other").symlink_to(folder / "one")
    with (
        atomic_files.resolve_target(folder / "link") as target,
        atomic_files.replace_atomically(target) as file,
    ):
        file.write(b"new")
    assert (folder / "there").read_bytes() == b"new"
    for loop in ("one", "one/x"):
        refused = pytest.raises(OutputError, match="symbolic links")
        with refused, atomic_files.resolve_target(folder / loop) as target:
            target.touch()
    assert (folder / "one").is_symlink()


# After the first half the writer waits for a signal.
WRITING = """
import os, sys, time
from pathlib import Path
from tflite2onnx.utils import atomic_files
{change}
create_all = atomic_files.replace_all_atomically()
with atomic_files.replace_atomically(Path("page.html")) as page, create_all as create:
    create(Path("model.onnx")).write(b"new")
    file = create(Path("model.onnx.data"))
    file.write(b"half")
    file.flush()
    print("begun", flush=True)
    time.sleep(600)
"""


def end_writer(folder: Path, number: int, change: str = "") -> None:
    """Run a process that writes files, and send it a signal before it is finished."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITING.format(change=change)],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
    assert process.returncode == -number


NAMED = "if hasattr(os, 'O_TMPFILE'): del os.O_TMPFILE"
HEEDED = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="files have names on this system")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_ended_process_leaves_no_files(tmp_path: Path, number: int) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")
    end_writer(tmp_path, number, HEEDED)
    assert contents(tmp_path) == {"model.onnx": b"old"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_process_removes_temporary_files_with_names(tmp_path: Path, number: int) -> None:
    (tmp_path / "model.onnx").write_bytes(b"old")
    end_writer(tmp_path, number, f"{HEEDED}\n{NAMED}")
    assert contents(tmp_path) == {"model.onnx": b"old"}


def test_signal_handlers_of_the_program_are_not_replaced(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """Handlers of the program are not replaced, and threads, which cannot set handlers, work."""
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def handler(*_: object) -> None:
        pass

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with atomic_files.replace_atomically(tmp_path / "one"):
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    write_in_thread: Callable[[], None] = lambda: write(tmp_path, "two")  # noqa: E731
    thread = threading.Thread(target=write_in_thread)
    thread.start()
    thread.join()
    with atomic_files.replace_atomically(tmp_path / "three"):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    signal.signal(signal.SIGTERM, before)
    assert {"one", "two", "three"} == contents(tmp_path).keys()
