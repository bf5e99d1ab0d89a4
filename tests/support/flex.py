"""Flex operators as TensorFlow's converter writes them: a name and a NodeDef in a flexbuffer."""

from __future__ import annotations

import struct
from typing import Any

from flatbuffers import flexbuffers


class Type(int):
    """An element type: TensorFlow's number for it."""


def flex_options(name: str, **attributes: Any) -> bytes:
    """The options of Flex`name`. Attributes are of the kinds that NodeDefs have, or lists."""
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(name)
        # A protobuf is a string if all its bytes are ASCII, else a blob.
        raw = node_def(name, **attributes)
        builder.String(raw.decode("latin-1")) if raw.isascii() else builder.Blob(raw)
    return bytes(builder.Finish())


def node_def(name: str, **attributes: Any) -> bytes:
    """A NodeDef."""
    entries = (
        _field(1, key.encode()) + _field(2, _attribute(value)) for key, value in attributes.items()
    )
    return (
        _field(1, b"node")
        + _field(2, name.encode())
        + _field(3, b"x")
        + _field(4, b"")
        + b"".join(_field(5, entry) for entry in entries)
    )


def _attribute(value: Any) -> bytes:
    if isinstance(value, list):
        kinds = {kind for kind, _ in map(_kind, value)}
        assert len(kinds) <= 1
        texts = bool(kinds & {2})
        items = [item for _, item in map(_kind, value)]
        packed = b"".join(_field(2, i) for i in items) if texts else b"".join(items)
        number = kinds.pop() if kinds else 3
        return _field(1, packed if texts else _field(number, packed))
    number, raw = _kind(value)
    if number == 2:
        return _field(2, raw)
    return _varint(number << 3 | (5 if number == 4 else 0)) + raw


def _kind(value: Any) -> tuple[int, bytes]:
    """The field of AttrValue that holds a value, and its bytes."""
    if isinstance(value, bool):
        return 5, _varint(int(value))
    if isinstance(value, Type):
        return 6, _varint(value)
    if isinstance(value, int):
        return 3, _varint(value % (1 << 64))
    if isinstance(value, float):
        return 4, struct.pack("<f", value)
    return 2, value if isinstance(value, bytes) else str(value).encode()


def _field(number: int, raw: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    out = []
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
