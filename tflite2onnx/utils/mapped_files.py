"""Reading and copying of memory-mapped files, whose pages are released after use."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard
from weakref import finalize

import numpy as np

from tflite2onnx.errors import ModelFileError

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL, which takes 3 MB
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from typing import Self  # Python 3.11 or later

Array = np.ndarray[Any, np.dtype[Any]]

_REGION_BYTES = 1 << 18  # of a mapped file, whose memory is released at once
_PIECE_BYTES = 1 << 16
_KEPT_BYTES = 1 << 16  # an array of fewer bytes stays in memory
_READ_AHEAD = 1 << 21  # Linux maps up to this number of bytes around a page: large folios
_SMALL_FILE = 1 << 22  # the pages of a smaller file may stay in memory
_DIGEST_BYTES = 32
_ROWS = 4  # pieces have a multiple of 4 rows, so that elements of two bits fill whole bytes


def write_elements(file: BinaryIO, array: Array) -> None:
    """Write the bytes of an array to a file."""
    file.writelines(read_elements(array))


def write_pieces(file: BinaryIO, data: memoryview) -> None:
    """Write bytes to a file."""
    file.writelines(read_pieces(data))


def read_elements(array: Array) -> Iterator[memoryview]:
    """Yield the bytes of an array in pieces.

    Pages of a mapped file count as memory of the process once they are read. The pages are released
    after each piece, so that a copy of a file of any size needs little memory.
    """
    if array.nbytes > _REGION_BYTES and not array.flags.c_contiguous:
        # A copy of a broadcast array needs memory, so only some rows are copied at a time.
        rows = max(1, len(array) * _REGION_BYTES // array.nbytes // _ROWS) * _ROWS
        for start in range(0, len(array), rows):
            yield from read_elements(_copy_array(array[start : start + rows]))
    else:
        yield from read_pieces(_copy_array(array).reshape(-1).view(np.uint8))


def _copy_array(array: Array) -> Array:
    """Return an array without strides; the pages of a mapped array with permuted axes are released.

    The part of the mapped file that is in memory at a time is small.
    """
    owner, strides = _find_mapping(array), np.abs(array.strides)
    if array.flags.c_contiguous or owner is None or not array.size:
        return np.ascontiguousarray(array)
    copy, axis = np.empty(array.shape, array.dtype), int(strides.argmax())
    source, target = np.moveaxis(array, axis, 0), np.moveaxis(copy, axis, 0)
    rows = max(1, _REGION_BYTES // int(strides[axis]))
    for start in range(0, len(source), rows):
        part = source[start : start + rows]
        target[start : start + rows] = part
        _release_pages(owner, part)
    return copy


class MappedFile(mmap.mmap):
    """A mapped file that stays open: parts of long arrays are read from the file, not from pages.

    Linux 6.18 maps up to 2 MB for an access to one page, and all of them count as memory of the
    process.
    """

    _descriptor: int

    def __new__(cls, file: BinaryIO) -> Self:
        mapped = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped._descriptor = os.dup(file.fileno())
        finalize(mapped, os.close, mapped._descriptor)
        return mapped

    def copy_bytes(self, array: Array) -> bytes:
        """Return the bytes of a contiguous array; ModelFileError if the file became shorter."""
        offset = find_address(array) - find_address(np.frombuffer(self, np.uint8))
        data = os.pread(self._descriptor, array.nbytes, offset)
        if len(data) < array.nbytes:
            raise ModelFileError("the file must not change while it is read, got a shorter file")
        return data


class _KeptFile(mmap.mmap):
    """A mapped file without a name, and the array from which the bytes were computed."""

    origin: Array | None

    def __new__(cls, file: BinaryIO, origin: Array | None) -> Self:
        mapped = super().__new__(cls, file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.origin = origin
        return mapped


def keep_bytes(
    size: int, make_pieces: Callable[[], Iterable[Array]], origin: Array | None = None
) -> Array:
    """Return a read-only array of the bytes of pieces, uint8.

    A long array is in a mapped file without a name, so that its pages are released like the pages
    of a model. If there is no room for this file, the array is in memory. `origin` is for
    `find_origin`.
    """
    if size > _KEPT_BYTES:
        try:
            with TemporaryFile() as file:
                file.writelines(memoryview(np.ascontiguousarray(p)) for p in make_pieces())
                file.flush()
                return np.frombuffer(_KeptFile(file, origin), np.uint8)
        except OSError:
            pass
    return np.concatenate([np.empty(0, np.uint8), *make_pieces()])


def find_origin(array: Array, times: int) -> Array | None:
    """Return the bytes that were unpacked to an array of `times` as many bytes; None if unknown."""
    owner = _find_owner(array)
    if not isinstance(owner, _KeptFile) or owner.origin is None or not array.flags.c_contiguous:
        return None
    start = find_address(array) - find_address(np.frombuffer(owner, np.uint8))
    if owner.origin.size * times != len(owner) or start % times or array.nbytes % times:
        return None
    return owner.origin[start // times : (start + array.nbytes) // times]


def digest_elements(array: Array) -> bytes:
    """Return a digest of the bytes of an array; a shorter array is its own digest."""
    return digest_pieces(read_elements(array)) if array.nbytes >= _DIGEST_BYTES else array.tobytes()


def digest_pieces(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Return a digest of bytes in pieces."""
    digest = blake2b()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()


def read_rows(array: Array) -> Iterator[Array]:
    """Yield an array in parts of its first axis; the memory of a part is released after use."""
    array = np.atleast_1d(array)
    owner = _find_mapping(array)
    rows = max(1, len(array) * _REGION_BYTES // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        part = array[start : start + rows]
        if _is_read_from_file(owner, part):
            yield np.frombuffer(owner.copy_bytes(part), array.dtype).reshape(part.shape)
            continue
        try:
            yield part
        finally:  # the caller may stop before the end
            if owner is not None and part.flags.c_contiguous:
                _release_pages(owner, part)


def read_pieces(data: Array | memoryview) -> Iterator[memoryview]:
    """Yield bytes in pieces; the memory of a piece is released after use."""
    elements = np.frombuffer(data, np.uint8) if isinstance(data, memoryview) else data
    owner = _find_mapping(elements)
    for start in range(0, elements.size, _REGION_BYTES):
        region = elements[start : start + _REGION_BYTES]
        parts = (region[i : i + _PIECE_BYTES] for i in range(0, region.size, _PIECE_BYTES))
        if _is_read_from_file(owner, region):
            yield from (memoryview(owner.copy_bytes(part)) for part in parts)
            continue
        yield from (memoryview(part) for part in parts)
        if owner is not None:
            _release_pages(owner, region)


def _is_read_from_file(owner: mmap.mmap | None, array: Array) -> TypeGuard[MappedFile]:
    """Return whether an array is read from a file that is open; it must be short: it is copied."""
    is_open = isinstance(owner, MappedFile) and hasattr(os, "pread")
    return is_open and array.flags.c_contiguous and array.nbytes <= _REGION_BYTES


def release_memory(*parts: memoryview | Array) -> None:
    """Release the memory of all mapped files that contain parts, as far as it has been read."""
    arrays = (np.frombuffer(p, np.uint8) if isinstance(p, memoryview) else p for p in parts)
    owners = {id(owner): owner for owner in map(_find_mapping, arrays) if owner is not None}
    for owner in owners.values():
        owner.madvise(mmap.MADV_DONTNEED)


def _find_mapping(array: Array) -> mmap.mmap | None:
    """Return the memory-mapped file that contains an array, None if its memory is not released.

    The memory of a small model is not released. The memory of temporary files is, because there may
    be many.
    """
    owner = _find_owner(array)
    if not isinstance(owner, mmap.mmap):
        return None
    if len(owner) <= _SMALL_FILE and not isinstance(owner, _KeptFile):
        return None
    return owner if hasattr(mmap, "MADV_DONTNEED") else None


def _find_owner(array: Array) -> object:
    owner: object = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner


def _release_pages(owner: mmap.mmap, piece: Array) -> None:
    """Release the pages of a piece of a mapped file; the next access reads them again."""
    spans = [(size - 1) * stride for size, stride in zip(piece.shape, piece.strides, strict=True)]
    start = find_address(piece) - find_address(np.frombuffer(owner, np.uint8))
    low, high = (sum(span for span in spans if (span > 0) is ahead) for ahead in (False, True))
    first = max(0, start + low - _READ_AHEAD) // mmap.PAGESIZE * mmap.PAGESIZE
    end = min(len(owner), start + high + piece.itemsize + _READ_AHEAD)
    owner.madvise(mmap.MADV_DONTNEED, first, end - first)


def find_address(array: Array) -> int:
    """Return the address of an array; `array.ctypes.data` takes several times as long."""
    return int(array.__array_interface__["data"][0])
