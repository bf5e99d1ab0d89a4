"""Read protocol buffers: their fields, or messages by the short schemas in `litertlm_schema`.

A message is a dictionary of the fields that it has. Fields that the schema lacks are skipped.
"""

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from tflite2onnx.reader.containers.litertlm_schema import MESSAGES

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_FLOAT = struct.Struct("<f")
_MOST_BITS = 64


def decode_message(data: bytes, kind: str) -> dict[str, Any]:
    """Return the fields of a message: integers, floats, strings, messages, and lists of these.

    Raises:
        ValueError: the bytes are not a message of this kind.
    """
    message: dict[str, Any] = {}
    for number, content in read_fields(data):
        name, inner, repeated = _list_fields(kind).get(number, ("", "", False))
        if not name:
            continue
        values = _decode_field(content, inner, packed=repeated)
        if repeated:
            message.setdefault(name, []).extend(values)
        else:
            message[name] = values[-1]
    return message


def read_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the content of each field of a message: an integer, or bytes."""
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        content, place = _read_content(data, place, tag & 7)
        yield tag >> 3, content


@cache
def _list_fields(kind: str) -> dict[int, tuple[str, str, bool]]:
    """Return the fields of a message by number: name, type, and whether it is repeated."""
    words = MESSAGES[kind].split()
    fields = {}
    for number, word in zip(words[::2], words[1::2], strict=True):
        name, _, inner = word.partition(":")
        fields[int(number)] = (name, inner.strip("[]"), inner.startswith("["))
    return fields


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    if place < len(data) and data[place] < 0x80:  # most numbers
        return data[place], place + 1
    value = 0
    for shift in range(0, _MOST_BITS, 7):
        if place >= len(data):
            raise ValueError("a number ends after the end of the bytes")
        value |= (data[place] & 0x7F) << shift
        place += 1
        if data[place - 1] < 0x80:
            return value, place
    raise ValueError("a number has more than 64 bits")


def _read_content(data: bytes, place: int, wire_type: int) -> tuple[int | bytes, int]:
    """Return the content of a field, and the position of the next field."""
    if wire_type == _VARINT:
        return _read_varint(data, place)
    if wire_type == _LENGTH:
        size, place = _read_varint(data, place)
    elif wire_type in (_FOUR_BYTES, _EIGHT_BYTES):
        size = 4 if wire_type == _FOUR_BYTES else 8
    else:
        raise ValueError(f"the type of a field must be 0, 1, 2 or 5, got {wire_type}")
    if place + size > len(data):
        raise ValueError("a field ends after the end of the bytes")
    return data[place : place + size], place + size


def _decode_field(content: int | bytes, kind: str, *, packed: bool) -> list[Any]:
    """Return the values of a field: one value, or the values of a packed list of integers."""
    if kind == "int":
        if not packed and not isinstance(content, int):
            raise ValueError("a field must be an integer, got bytes")
        return read_integers(content)
    if isinstance(content, int):
        raise ValueError(f"a field must be a {kind}, got an integer")  # noqa: TRY004 - of the file
    if kind == "float":
        if len(content) != _FLOAT.size:
            raise ValueError(f"a float must have {_FLOAT.size} bytes, got {len(content)}")
        return list(_FLOAT.unpack(content))
    if kind == "bytes":
        return [content]
    if kind == "string":
        return [content.decode("utf-8", "replace")]
    return [decode_message(content, kind)]


def read_integers(content: int | bytes) -> list[int]:
    """Return the signed integers of a field: one integer, or the integers of a packed list."""
    numbers, place = [content] if isinstance(content, int) else [], 0
    while isinstance(content, bytes) and place < len(content):
        number, place = _read_varint(content, place)
        numbers.append(number)
    return [n - (1 << _MOST_BITS) if n >> (_MOST_BITS - 1) & 1 else n for n in numbers]
