"""Zip archives in files of users: bundles, and the files that are packed with a model.

An archive declares how large its files are. A deflated byte can unpack to a thousand bytes, and
many files can share the same packed bytes. An archive that declares far more bytes than allowed is
rejected before any file is read, and no more bytes of a file are read than declared.
"""

import io
import struct
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import Any

from tflite2onnx.utils.mapped_files import read_pieces

_MAGIC = b"PK\x03\x04"
# MediaPipe aligns files in bundles to 4 bytes, and may write zeros before the first file.
_MOST_ZEROS = 3
# The exceptions that Python raises for a damaged archive.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
_MOST_FILES = 1 << 12
# Other methods may need any amount of memory.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# The header before the bytes of a file has a fixed part of 30 bytes. The fixed part ends with the
# lengths of the name and of the extra field, which follow it.
_LENGTHS, _HEADER = struct.Struct("<HH"), 30


def is_archive(start: bytes | memoryview) -> bool:
    """Return whether a file that starts with these bytes is an archive."""
    first = bytes(start[: _MOST_ZEROS + len(_MAGIC)])
    return first.lstrip(b"\0").startswith(_MAGIC)


def is_inside(name: str) -> bool:
    """Return whether the path of a file leads to a place in its folder or archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    parts = path.parts
    return not path.is_absolute() and bool(parts) and ".." not in parts and ":" not in parts[0]


def open_archive(data: memoryview) -> zipfile.ZipFile:
    """Return an archive without copying its bytes; BadZipFile if they are not an archive."""
    return zipfile.ZipFile(io.BufferedReader(_Bytes(data)))


def list_entries(archive: zipfile.ZipFile, limit: int) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without folders.

    ValueError: the files declare more bytes than the limit, there are too many files, or a file is
    compressed by a method other than deflate.
    """
    entries = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
    if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > limit:
        raise ValueError(f"it must have at most {_MOST_FILES} files and {limit:,} bytes")
    for entry in entries:
        if entry.compress_type not in _METHODS:
            raise ValueError(
                f"{entry.filename} must be stored or deflated,"
                f" got compression method {entry.compress_type}"
            )
    return entries


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a file, as many as its archive declares; BadZipFile if they are wrong."""
    # `archive.read` would unpack all bytes before the size is checked.
    with archive.open(entry) as file:
        return file.read(entry.file_size)


def view_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, data: memoryview) -> memoryview:
    """Return the result of `read_entry`, as a view on the archive `data` if uncompressed."""
    if entry.compress_type != zipfile.ZIP_STORED:
        return memoryview(read_entry(archive, entry))
    archive.open(entry).close()  # checks the header of the file
    start = entry.header_offset + _HEADER
    start += sum(_LENGTHS.unpack_from(data, start - _LENGTHS.size))
    view = data[start : start + entry.file_size]
    checksum = 0
    for piece in read_pieces(view):
        checksum = zlib.crc32(piece, checksum)
    if checksum != entry.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {entry.filename!r}")
    return view


class _Bytes(io.RawIOBase):
    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data, self._place = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, origin: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: len(self._data)}[origin]
        if base + offset < 0:
            raise ValueError(f"an offset in a file must not be negative, got {base + offset}")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any bytes that can be written
        target = memoryview(buffer).cast("B")
        piece = self._data[self._place : self._place + len(target)]
        target[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)
