"""The bytes of a constant as an array, and back: views wherever numpy has the type.

Types under eight bits are unpacked, one element to a byte; strings become an array of `bytes`.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from tflite2onnx.tensor import Array, DType, Shape

_BYTE = 8


class ElementsError(ValueError):
    """The bytes are not those of such a tensor."""


def nbytes(shape: Shape, dtype: DType) -> int:
    """Return how many bytes a constant takes in the file; types without a fixed size take none."""
    return -(-math.prod(shape) * dtype.bits // _BYTE)


def fits_type(dtype: DType, integers: Array) -> bool:
    """Return whether an integer type holds all these integers."""
    low = 0 if dtype.label.startswith("u") else -(2 ** (dtype.bits - 1))
    return bool((integers >= low).all() and (integers <= low + 2**dtype.bits - 1).all())


def flat(raw: memoryview, dtype: DType) -> Array:
    """Return all elements that the bytes hold, on one axis; a view if they fill whole bytes.

    Raises:
        ElementsError: the bytes are no strings.
    """
    if dtype is DType.STRING:
        return _strings(raw)
    if dtype.bits < _BYTE:
        return _unpack_subbyte(np.frombuffer(raw, np.uint8), dtype)
    whole = len(raw) - len(raw) % (dtype.bits // _BYTE)
    if dtype is DType.BOOL:
        stored = np.frombuffer(raw, np.uint8)
        # numpy takes a byte that is neither 0 nor 1 for granted, and computes nonsense with it.
        return stored.view(np.bool_) if stored.max(initial=0) <= 1 else stored != 0
    return np.frombuffer(raw[:whole], dtype.numpy)


def shape_elements(elements: Array, shape: Shape) -> Array:
    """Return the elements of a constant in its shape; what lies behind them is padding.

    Raises:
        ElementsError: there are too few.
    """
    count = math.prod(shape)
    if elements.size < count:
        raise ElementsError(f"it has {count} elements and the file holds {elements.size}")
    return elements[:count].reshape(shape)


def _unpack_subbyte(raw: Array, dtype: DType) -> Array:
    """Return elements of two or four bits, the first in the lowest bits, as int8 or uint8."""
    kind = np.int8 if dtype.label.startswith("int") else np.uint8
    rest = _BYTE - dtype.bits
    every = np.empty((raw.size, _BYTE // dtype.bits), kind)
    for i, shift in enumerate(range(rest, -1, -dtype.bits)):
        # To the highest bits and back, so that the sign is carried along.
        every[:, i] = (raw << np.uint8(shift)).view(kind) >> rest
    return every.reshape(-1)


def pack_subbyte(elements: Array, dtype: DType) -> Array:
    """Return elements of two or four bits as bytes, the first in the lowest bits; others as is.

    TFLite and ONNX pack them alike.
    """
    if dtype.bits == 0 or dtype.bits >= _BYTE:
        return elements
    every = elements.reshape(-1).view(np.uint8)
    per_byte = _BYTE // dtype.bits
    raw = np.zeros(-(-every.size // per_byte), np.uint8)
    for i in range(per_byte):
        fields = every[i::per_byte] & np.uint8(2**dtype.bits - 1)
        raw[: fields.size] |= fields << np.uint8(i * dtype.bits)
    return raw


def _strings(raw: memoryview) -> Array:
    """Return strings: int32 count, int32 offsets of each and of the end, then the characters.

    What the file holds lies one after another, so that all strings are no longer than it is
    (string_util.h); overlapping ones could fill the memory.
    """
    words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4")
    count = int(words[0]) if words.size else -1
    if not 0 <= count < words.size - 1:
        raise ElementsError("its strings are damaged")
    ends = words[1 : count + 2].astype(np.int64)
    if (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(raw):
        raise ElementsError("its strings are damaged")
    strings = np.empty(count, np.object_)
    strings[:] = [bytes(raw[start:end]) for start, end in pairwise(ends)]
    return strings
