"""Zip archives made by others: bundles, and the files that are packed with a model.

An archive declares how large its files are. A deflated byte can unpack to a thousand bytes, and
many files can share the same packed bytes. An archive that declares far more bytes than allowed is
rejected before any file is read, and no more bytes of a file are read than declared.
"""

from __future__ import annotations

import zipfile
import zlib

MAGIC = b"PK\x03\x04"
# The exceptions that Python raises for a damaged archive.
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
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods may take any memory


def list_entries(archive: zipfile.ZipFile, limit: int) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without folders.

    Raises:
        ValueError: the files declare more bytes than the limit, or there are too many files, or a
            file is compressed by a method other than deflate.
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
    """Return the bytes of a file in an archive, as many as the archive declares.

    Raises:
        zipfile.BadZipFile: the file's checksum is wrong.
    """
    with archive.open(entry) as file:  # `archive.read` unpacks all bytes before it checks the size
        return file.read(entry.file_size)
