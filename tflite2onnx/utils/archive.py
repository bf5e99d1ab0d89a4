"""Zip archives that others have made: bundles, and the files that are packed with a model.

An archive says how large its files are, and deflate can make a thousand bytes of one; the same
bytes can be the content of many files. Whatever would make far more is refused unread, and of what
an archive says to be small no more is read than it says.
"""

from __future__ import annotations

import zipfile
import zlib

MAGIC = b"PK\x03\x04"
# What Python raises where an archive is damaged.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
_MOST_FILES = 1 << 12
_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may ask for memory as they like


def list_entries(archive: zipfile.ZipFile, room: int) -> list[zipfile.ZipInfo]:
    """Return the files of an archive.

    Raises:
        ValueError: together they take more bytes than there is room for, or there are too many.
    """
    found = [entry for entry in archive.infolist() if not entry.filename.endswith("/")]
    if len(found) > _MOST_FILES or sum(entry.file_size for entry in found) > room:
        raise ValueError("it would unpack to far more than it holds")
    for entry in found:
        if entry.compress_type not in _KNOWN:
            raise ValueError(f"{entry.filename} is compressed by method {entry.compress_type}")
    return found


def content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return what a file of an archive holds, as many bytes as the archive says.

    Raises:
        zipfile.BadZipFile: it holds something else.
    """
    with archive.open(entry) as file:  # `archive.read` unpacks everything before it looks
        return file.read(entry.file_size)
