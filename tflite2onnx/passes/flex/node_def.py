"""Read the NodeDef of a Flex operator: the name and attributes of a TensorFlow operator.

The protobuf is decoded here field by field, which avoids a dependency. Operators have few kinds of
attributes: numbers, strings, dtypes, and lists of these.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types
_MOST_BYTES = 10  # of a number of 64 bits
# Fields of NodeDef, of an entry of its map of attributes, and of AttrValue.
_OP, _ATTRIBUTES = 2, 5
_KEY, _VALUE = 1, 2
_LIST, _TEXT, _INTEGER, _REAL, _TRUTH, _TYPE = 1, 2, 3, 4, 5, 6


class NodeDefError(ValueError):
    """The bytes are not a NodeDef."""


class NodeDef(NamedTuple):
    """A TensorFlow operator. Dtypes are numbers; strings that are not UTF-8 are bytes."""

    op: str
    attributes: dict[str, Any]


def decode(data: bytes) -> NodeDef:
    """Return the operator of a NodeDef.

    Raises:
        NodeDefError: the bytes are not a NodeDef.
    """
    try:
        op, attributes = "", {}
        for number, _, value in _read_fields(data):
            if number == _OP:
                op = value.decode()
            elif number == _ATTRIBUTES:
                entry = {number: value for number, _, value in _read_fields(value)}
                attributes[entry[_KEY].decode()] = _read_attribute(entry.get(_VALUE, b""))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error) as error:
        raise NodeDefError(f"not a valid NodeDef: {error}") from error
    return NodeDef(op, attributes)


def _read_fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field of a message."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        wire = tag & 7
        if wire == _VARINT:
            value, place = _read_varint(data, place)
            yield tag >> 3, wire, value
            continue
        if wire == _BYTES:
            size, place = _read_varint(data, place)
        elif wire in (_DOUBLE, _FLOAT):
            size = 8 if wire == _DOUBLE else 4
        else:
            raise ValueError(
                f"the wire type must be {_VARINT}, {_DOUBLE}, {_BYTES} or {_FLOAT}, got {wire}"
            )
        if place + size > len(data):
            raise ValueError("a field ends after the end of the data")
        yield tag >> 3, wire, data[place : place + size]
        place += size


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for i in range(_MOST_BYTES):
        byte = data[place + i]
        value |= (byte & 127) << 7 * i
        if byte < 128:  # the highest bit is set if more bytes follow
            return value, place + i + 1
    raise ValueError(f"a number must have at most {_MOST_BYTES} bytes")


def _read_attribute(data: bytes) -> Any:  # noqa: ANN401 - of any of the kinds above
    """Return an AttrValue; None for other kinds, such as a tensor."""
    found = None
    for number, wire, value in _read_fields(data):
        if number == _LIST:
            found = [item for field in _read_fields(value) for item in _list_items(*field)]
        else:
            items = _list_items(number, wire, value)
            found = items[0] if items else None
    return found


def _list_items(number: int, wire: int, value: Any) -> list[Any]:  # noqa: ANN401 - as read
    """Return the values of a field; AttrValue and its lists have the same field numbers."""
    if number == _TEXT:
        return [_read_text(value)]
    if number == _REAL:
        return [item for (item,) in struct.iter_unpack("<f", value)]
    if number not in (_INTEGER, _TRUTH, _TYPE):
        return []
    numbers = [value] if wire == _VARINT else list(_unpack_varints(value))
    signed = [n - (1 << 64) if n >= 1 << 63 else n for n in numbers]
    return [bool(n) for n in signed] if number == _TRUTH else signed


def _unpack_varints(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _read_varint(data, place)
        yield value


def _read_text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
