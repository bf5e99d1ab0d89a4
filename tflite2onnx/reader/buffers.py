"""Convert the bytes of a constant to an array and back, without a copy if numpy has the type.

Types under eight bits are unpacked to one element per byte. Strings become an array of `bytes`.
"""

import logging
import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.mapped_files import (
    find_origin,
    keep_bytes,
    read_elements,
    read_pieces,
    read_rows,
)

_logger = logging.getLogger(__name__)

_BYTE = 8


class ElementsError(ValueError):
    """The bytes do not fit the tensor's type or shape."""


def count_bytes(shape: Shape, dtype: DType) -> int:
    """Return the number of bytes of a constant in the file, 0 for types without a fixed size."""
    return -(-math.prod(shape) * dtype.bits // _BYTE)


def fits_type(dtype: DType, integers: Array) -> bool:
    """Return whether all these integers are in the range of an integer type."""
    low = 0 if dtype.label.startswith("u") else -(2 ** (dtype.bits - 1))
    high = low + 2**dtype.bits - 1
    return low <= integers.min(initial=low) and bool(integers.max(initial=high) <= high)


def are_scales(scale: Array) -> bool:
    """Return whether all scales are finite and not negative."""
    # A comparison with NaN is false.
    return bool(scale.min(initial=0) >= 0 and scale.max(initial=0) < np.inf)


def check_stored_scales(scale: Array) -> None:
    """Raise ElementsError if a scale is negative or not finite."""
    if not all(map(are_scales, read_rows(scale))):
        raise ElementsError("its scales must be finite and not negative")


def read_flat(raw: memoryview, dtype: DType) -> Array:
    """Return all elements in the bytes, on one axis; ElementsError if strings are not valid."""
    if dtype is DType.STRING:
        return _read_strings(raw)
    if dtype.bits < _BYTE:
        return unpack_subbyte(np.frombuffer(raw, np.uint8), dtype)
    whole = len(raw) - len(raw) % (dtype.bits // _BYTE)
    if dtype is DType.BOOL:
        bytes_read = np.frombuffer(raw, np.uint8)
        # numpy assumes that a bool is the byte 0 or 1, and computes nonsense from other bytes.
        return bytes_read.view(np.bool_) if bytes_read.max(initial=0) <= 1 else bytes_read != 0
    return np.frombuffer(raw[:whole], dtype.numpy)


def warn_of_other_bytes(name: str, stored: memoryview) -> None:
    """Warn of booleans that LiteRT's kernels read in different ways (docs/faq.md)."""
    largest = int(np.frombuffer(stored, np.uint8).max(initial=0))
    if largest > 1:
        _logger.warning(
            "the bytes of the BOOL constant %s must be 0 or 1, got %d: the ONNX model takes all"
            " bytes but 0 for true, and operators of LiteRT disagree about them",
            name,
            largest,
        )


def shape_elements(elements: Array, shape: Shape) -> Array:
    """Return elements, without the padding after them, in a shape; ElementsError if too few."""
    count = math.prod(shape)
    if elements.size < count:
        raise ElementsError(f"it must have {count} elements in the file, got {elements.size}")
    return elements[:count].reshape(shape)


def unpack_subbyte(raw: Array, dtype: DType) -> Array:
    """Return elements of two or four bits, the first in the lowest bits, as int8 or uint8."""
    kind = np.int8 if dtype.label.startswith("int") else np.uint8

    def unpack() -> Iterator[Array]:
        for piece in read_pieces(raw):
            fields = np.frombuffer(piece, np.uint8)
            elements_of_bytes = np.empty((fields.size, _BYTE // dtype.bits), kind)
            shift_back = _BYTE - dtype.bits
            for i, shift in enumerate(range(shift_back, -1, -dtype.bits)):
                # A left shift to the highest bits and an arithmetic right shift extend the sign.
                elements_of_bytes[:, i] = (fields << np.uint8(shift)).view(kind) >> shift_back
            yield elements_of_bytes.reshape(-1).view(np.uint8)

    return keep_bytes(raw.size * (_BYTE // dtype.bits), unpack, raw).view(kind)


def pack_subbyte(elements: Array, dtype: DType) -> Array:
    """Return elements of two or four bits as bytes, the first in the lowest bits.

    Elements of other types are returned unchanged. TFLite and ONNX use the same packing.
    """
    if dtype.bits == 0 or dtype.bits >= _BYTE:
        return elements
    per_byte = _BYTE // dtype.bits
    packed = find_origin(elements, per_byte)
    if packed is not None:
        return packed

    def pack() -> Iterator[Array]:
        for piece in read_elements(elements):  # the elements of each piece fill whole bytes
            octets = np.frombuffer(piece, np.uint8)
            raw = np.zeros(-(-octets.size // per_byte), np.uint8)
            for i in range(per_byte):
                fields = octets[i::per_byte] & np.uint8(2**dtype.bits - 1)
                raw[: fields.size] |= fields << np.uint8(i * dtype.bits)
            yield raw

    return keep_bytes(-(-elements.size // per_byte), pack)


def widen_numbers(numbers: Array) -> Array:
    """Return numbers as float32."""

    def widen() -> Iterator[Array]:
        for rows in read_rows(numbers):
            yield rows.astype(np.float32).reshape(-1).view(np.uint8)

    result = keep_bytes(numbers.size * np.dtype(np.float32).itemsize, widen)
    return result.view(np.float32).reshape(numbers.shape)


def _read_strings(raw: memoryview) -> Array:
    """Return strings, stored as int32 count, int32 offsets of each and of the end, and characters.

    Strings are stored one after another (string_util.h), so their total length is at most that
    of the buffer. Overlapping strings could fill the memory.
    """
    words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4")
    count = int(words[0]) if words.size else -1
    ends = words[1 : max(count, 0) + 2].astype(np.int64)
    fits = 0 <= count < words.size - 1 and ends[0] >= 0 and ends[-1] <= len(raw)
    if not fits or (np.diff(ends) < 0).any():
        raise ElementsError("the offsets of its strings must be ascending and inside its data")
    strings = np.empty(count, np.object_)
    strings[:] = [bytes(raw[start:end]) for start, end in pairwise(ends)]
    return strings
