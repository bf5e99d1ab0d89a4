"""utils/mapped_files.py: copies of parts of memory-mapped files."""

from __future__ import annotations

import io
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from tflite2onnx.errors import ModelFileError
from tflite2onnx.utils import mapped_files
from tflite2onnx.utils.mapped_files import (
    MappedFile,
    digest_elements,
    keep_bytes,
    read_rows,
    release_memory,
    write_elements,
)


def resident_bytes() -> int:
    """Return the resident memory of this process that is backed by files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssFile:")[2].split()[0]) << 10


@pytest.mark.parametrize("offset", [0, 1, 4096, 5000])
def test_pages_of_copied_parts_are_released(offset: int, tmp_path: Path) -> None:
    """The pages of a part are released, aligned or not; the elements do not change."""
    path, size = tmp_path / "weights", 1 << 25
    path.write_bytes(np.random.default_rng(0).bytes(size))
    with path.open("rb") as file, (tmp_path / "copy").open("wb") as copy:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        part = np.frombuffer(mapped[offset : size - 7], np.uint8)
        before = resident_bytes()
        write_elements(copy, part)
        assert resident_bytes() - before < size / 4
        assert part.tobytes() == path.read_bytes()[offset : size - 7]
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()[offset : size - 7]


def test_long_arrays_are_read_without_pages_of_the_file(tmp_path: Path) -> None:
    """Pieces and rows of an open file do not become memory of the process."""
    path, size = tmp_path / "weights", 1 << 25
    path.write_bytes(np.random.default_rng(0).bytes(size))
    with path.open("rb") as file:
        mapped = MappedFile(file)
    array = np.frombuffer(mapped, np.float32, offset=4096).reshape(-1, 1024)
    before = resident_bytes()
    copy = io.BytesIO()
    write_elements(copy, array)
    rows = b"".join(part.tobytes() for part in read_rows(array))
    assert resident_bytes() - before < 1 << 20
    assert copy.getvalue() == rows == path.read_bytes()[4096:]


def test_long_row_of_an_open_file_is_not_copied(tmp_path: Path) -> None:
    """One row of any length is read from the pages of the file."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 << 23))
    with path.open("rb") as file:
        array = np.frombuffer(MappedFile(file), np.uint8).reshape(1, -1)
    (row,) = read_rows(array)
    assert np.shares_memory(row, array)


def test_descriptor_of_a_mapped_file_is_closed(tmp_path: Path) -> None:
    """The file is open as long as an array reads from it, and no longer."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 << 23))
    count = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - as in tests/fuzz
    with path.open("rb") as file:
        array = np.frombuffer(MappedFile(file), np.uint8)
    assert len(os.listdir("/proc/self/fd")) > count  # noqa: PTH208
    del array
    assert len(os.listdir("/proc/self/fd")) == count  # noqa: PTH208


def test_file_that_becomes_shorter_is_refused(tmp_path: Path) -> None:
    """A file that another program makes shorter is an error; its elements are not left out."""
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 << 23))
    with path.open("rb") as file:
        array = np.frombuffer(MappedFile(file), np.uint8)
    os.truncate(path, 1 << 22)
    with pytest.raises(ModelFileError, match="must not change while it is read"):
        write_elements(io.BytesIO(), array)


@pytest.mark.parametrize("transposed", [False, True])
def test_pages_of_copied_matrices_are_released(tmp_path: Path, *, transposed: bool) -> None:
    """The pages of matrices that are copied, transposed or read row by row are released."""
    path, size = tmp_path / "weights", 1 << 25
    path.write_bytes(bytes(range(1, 65)) * (size // 64))
    with path.open("rb") as file, (tmp_path / "copy").open("wb") as copy:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        bytes_of = np.frombuffer(mapped, np.uint8).data  # a view of an array of a view
        matrix = np.frombuffer(bytes_of, np.float32).reshape(1 << 12, -1)
        before = resident_bytes()
        written = matrix.T if transposed else matrix
        write_elements(copy, written)
        assert resident_bytes() - before < size / 4
        assert next(read_rows(matrix)).tobytes() == matrix[: 1 << 5].tobytes()
        assert sum(len(part) for part in read_rows(matrix)) == len(matrix)
        assert resident_bytes() - before < size / 4
        assert matrix.min() == matrix[0].min()
        release_memory(mapped)
        assert resident_bytes() - before < size / 4
    assert (tmp_path / "copy").read_bytes() == written.tobytes()


def test_arrays_are_written_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays are written in small pieces, with the bytes of a contiguous copy."""
    monkeypatch.setattr(mapped_files, "_PIECE_BYTES", 5)
    for array in (np.arange(24, dtype=np.int16).reshape(4, 6).T, np.zeros(0), np.array(3.5)):
        file = io.BytesIO()
        write_elements(file, array)
        assert file.getvalue() == array.tobytes()


def test_broadcast_arrays_are_copied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array that repeats its elements is copied in pieces."""
    monkeypatch.setattr(mapped_files, "_PIECE_BYTES", 48)
    array = np.broadcast_to(np.arange(3, dtype=np.float32), (11, 3))
    file = io.BytesIO()
    write_elements(file, array)
    assert file.getvalue() == array.tobytes()


def test_pages_around_many_small_parts_are_released(tmp_path: Path) -> None:
    """The pages around a part, which Linux maps with it, are released as well."""
    path, size, step = tmp_path / "weights", 1 << 25, 1 << 17
    path.write_bytes(bytes(size))
    with path.open("rb") as file, (tmp_path / "copy").open("wb") as copy:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        before = resident_bytes()
        for start in range(0, size, step):
            write_elements(copy, np.frombuffer(mapped[start + 5000 : start + 9000], np.uint8))
        assert resident_bytes() - before < size / 16


def test_many_small_temporary_files_are_released() -> None:
    """Temporary files are released one by one, however small: a model may have hundreds."""
    size, count = 1 << 20, 64
    before = resident_bytes()
    kept = [keep_bytes(size, lambda: [np.ones(size, np.uint8)]) for _ in range(count)]
    assert len({digest_elements(each) for each in kept}) == 1
    assert resident_bytes() - before < size * count / 8
