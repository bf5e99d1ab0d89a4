"""Conversion of arrays and schema objects to the bytes of a TFLite file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support.facts import Table, carrier

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALIGNMENT = 16
_BITS = {"int2": 2, "int4": 4, "uint4": 4}


@dataclass
class Buffer:
    """A BufferT that aligns its data to 16 bytes, as the schema requires."""

    data: bytes = b""
    offset: int = 0
    size: int = 0

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - the name in the object API
        """Write the buffer and return its position."""
        vector = self._vector(builder) if self.data else 0
        schema.BufferStart(builder)
        schema.BufferAddData(builder, vector)
        schema.BufferAddOffset(builder, self.offset)
        schema.BufferAddSize(builder, self.size)
        position: int = schema.BufferEnd(builder)
        return position

    def _vector(self, builder: flatbuffers.Builder) -> int:
        builder.StartVector(1, len(self.data), _ALIGNMENT)
        builder.head -= len(self.data)
        builder.Bytes[builder.head : builder.head + len(self.data)] = self.data
        position: int = builder.EndVector()
        return position


@dataclass(frozen=True)
class External:
    """Bytes after the flatbuffer, and the two fields of `holder` with their position and size."""

    data: bytes
    holder: Table
    offset: str = "offset"
    size: str = "size"


def _flatten(model: Table) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def pack(model: Table, external: Sequence[External] = ()) -> bytes:
    """The file of a ModelT, with aligned external data appended to the flatbuffer."""
    # The value of a field does not change the size of the flatbuffer. The first pass only measures
    # the size, with any value except 0, because a field of 0 is absent.
    for part in external:
        setattr(part.holder, part.offset, _ALIGNMENT)
        setattr(part.holder, part.size, len(part.data))
    flat = _flatten(model)
    if not external:
        return flat
    tail = bytearray(-len(flat) % _ALIGNMENT)
    for part in external:
        setattr(part.holder, part.offset, len(flat) + len(tail))
        tail += part.data + bytes(-len(part.data) % _ALIGNMENT)
    return _flatten(model) + bytes(tail)


def _pack_bits(values: np.ndarray[Any, Any], bits: int) -> bytes:
    """Several values per byte, the first value in the lowest bits."""
    per_byte = 8 // bits
    flat = np.pad(values.ravel().view(np.uint8), (0, -values.size % per_byte))
    fields = flat.reshape(-1, per_byte) & ((1 << bits) - 1)
    shifted = fields << np.arange(0, 8, bits, dtype=np.uint8)
    packed: np.ndarray[Any, Any] = np.bitwise_or.reduce(shifted, axis=1)
    return packed.astype(np.uint8).tobytes()


def _string_table(strings: Sequence[str | bytes]) -> bytes:
    """A count, the offset of each string and of the end (int32 each), then the characters."""
    encoded = [text if isinstance(text, bytes) else text.encode() for text in strings]
    start = 4 * (len(encoded) + 2)
    ends = start + np.cumsum([0, *map(len, encoded)])
    return np.array([len(encoded), *ends], "<i4").tobytes() + b"".join(encoded)


def encode_array(array: np.ndarray[Any, Any], dtype: str) -> bytes:
    """The bytes of an array in a buffer of this tensor type.

    Raises:
        ValueError: an integer that this type cannot hold.
    """
    if dtype == "string":
        return _string_table(array.ravel().tolist())
    kind = carrier(dtype)
    values = array.astype(kind)
    bits = _BITS.get(dtype, 8 * kind.itemsize)
    fits = kind.kind not in "iu" or not array.size or np.array_equal(values, array)
    if dtype in _BITS and array.size:
        low = 0 if dtype.startswith("u") else -(1 << (bits - 1))
        fits &= low <= values.min() and values.max() < low + (1 << bits)
    if not fits:
        raise ValueError(f"not every value fits {dtype}: {array.min()} to {array.max()}")
    return _pack_bits(values, bits) if dtype in _BITS else values.tobytes()
