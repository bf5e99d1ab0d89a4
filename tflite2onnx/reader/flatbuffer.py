"""Read the tables of a flatbuffer by the schemas (https://flatbuffers.dev/internals/).

A table refers to strings, vectors and other tables by forward offsets. It refers to its list of
slots (vtable) by a backward offset; tables may share a list. Offsets outside the bytes raise
ValueError or struct.error. Only strings are copied.

The classes that flatc generates take three times as long: this module reads all fields of the 17
models in assets/models in 55 ms. The package tflite takes 175 ms, and another 80 ms for its import.
`python -m tests.reader.test_tflite_package` measures these times, and compares the two readers
field by field as a test.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tflite2onnx.reader import metadata_schema, schema
from tflite2onnx.reader.containers import litertlm_schema
from tflite2onnx.tensor import Array

# Format characters of the struct module. numpy has the same.
_NUMBERS = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
}
_CASTS = {"bool": bool, "float32": float, "float64": float}
_UNIONS = schema.UNIONS | metadata_schema.UNIONS | litertlm_schema.UNIONS
_KINDS = schema.TABLES | metadata_schema.TABLES | litertlm_schema.TABLES
_KINDS |= {kind: fields for union in _UNIONS.values() for kind, fields in union.items()}
_SLOT, _BACK, _AHEAD = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
# Two slots, the sizes of the list and of the table, are before the slot of the first field.
_FIRST = 2


class Table(Mapping[str, Any]):
    """A table as a mapping of all fields in the schema; fields that the file lacks have defaults.

    A field is a number or a bool, the bytes of a string, a view on a vector of numbers, a `Vector`
    of tables, or a table. A missing string or table is None. The table of a union is None if its
    type is not in the schema.
    """

    __slots__ = ("_fields", "data", "kind", "position")

    def __init__(self, data: memoryview, position: int, kind: str) -> None:
        self.data = data
        self.position = position
        self.kind = kind
        start = position - _BACK.unpack_from(data, position)[0]
        if start < 0:  # in Python a negative offset counts from the end
            raise struct.error("the vtable of a table begins before the start of the file")
        count = min(_SLOT.unpack_from(data, start)[0] // _SLOT.size, _count_slots(kind))
        self._fields = _locate_fields(kind, count, bytes(data[start : start + _SLOT.size * count]))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - depends on the schema
        offset, reader, default = self._fields[name]
        return reader(self, self.position + offset) if offset else default

    def find_offset(self, name: str) -> int | None:
        """Return the position of a field in the bytes, None if the file does not have the field."""
        offset = self._fields[name][0]
        return self.position + offset if offset else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Vector:
    """A vector of tables; each table is created on access."""

    def __init__(self, data: memoryview, position: int, kind: str) -> None:
        self._data, self._first, self._kind = data, position + _AHEAD.size, kind
        (self._length,) = _AHEAD.unpack_from(data, position)

    def __len__(self) -> int:
        return int(self._length)

    def __getitem__(self, index: int) -> Table:
        return Table(self._data, _follow_offset(self._data, self.find_offset(index)), self._kind)

    def find_offset(self, index: int) -> int:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._first + _AHEAD.size * index


class TableReader:
    """Reads tables up to a limit of bytes: tables can be shared, so a small file could list many.

    `table` is the number of bytes by which a table reduces the limit.
    """

    def __init__(self, limit: int, table: int = 2 * _AHEAD.size) -> None:
        self._limit = self._left = limit
        self._table = table

    def use_budget(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise ValueError(f"its parts must take at most {self._limit:,} bytes together")

    def read_tables(self, tables: Vector | Sequence[Table]) -> list[Table]:
        self.use_budget(self._table * len(tables))
        return [tables[i] for i in range(len(tables))]

    def read_text(self, raw: bytes | None) -> str:
        self.use_budget(len(raw or b""))
        return (raw or b"").decode("utf-8", "replace")


def read_root(data: memoryview, kind: str = "Model") -> Table:
    """Return the root table of a flatbuffer: a model, or a flatbuffer in a buffer of a model."""
    return Table(data, _follow_offset(data, 0), kind)


def make_zero_fields(kind: str) -> dict[str, Any]:
    """Return the fields of a table in which all numbers are 0, not the schema's defaults.

    Vectors are empty. Strings and tables are None.
    """
    defaults = {name: field.default for name, field in _list_fields(kind).items()}
    return {
        name: type(default)() if isinstance(default, int | float) else default
        for name, default in defaults.items()
    }


_Read: TypeAlias = Callable[[Table, int], Any]


class _Field(NamedTuple):
    slot: int  # index in the list of slots
    read: _Read
    default: Any


@cache
def _list_fields(kind: str) -> dict[str, _Field]:
    fields = {}
    for i, field in enumerate(_KINDS[kind], _FIRST):
        name, _, rest = field.partition(":")
        if name != "-":
            fields[name] = _Field(i, *_make_reader(name, *rest.partition("=")[::2]))
    return fields


@cache
def _count_slots(kind: str) -> int:
    return _FIRST + len(_KINDS[kind])


@lru_cache(maxsize=1024)
def _locate_fields(kind: str, count: int, slots: bytes) -> dict[str, tuple[int, _Read, Any]]:
    """Return the offset of each field in a table, how to read it, and its default.

    The offset is 0 if the table does not have the field. The tables of a file have few lists of
    slots.
    """
    offsets = dict(enumerate(struct.unpack(f"<{count}H", slots)))
    return {
        name: (offsets.get(slot, 0), *rest) for name, (slot, *rest) in _list_fields(kind).items()
    }


def _make_reader(name: str, kind: str, default: str) -> tuple[_Read, Any]:
    """Return the function that reads a field at its position, and the field's default."""
    letter = _NUMBERS.get(kind.strip("[]"), "")
    if letter and kind.startswith("["):
        return partial(_read_numbers, np.dtype(f"<{letter}")), np.zeros(0, letter)
    if letter:
        return partial(_read_number, struct.Struct(f"<{letter}")), _CASTS.get(kind, int)(
            default or 0
        )
    if kind.startswith("["):
        return partial(_read_tables, kind.strip("[]")), ()
    if kind in _UNIONS:
        return partial(_read_union, f"{name}_type", tuple(_UNIONS[kind])), None
    return (_read_string if kind == "string" else partial(_read_table, kind)), None


def _follow_offset(data: memoryview, place: int) -> int:
    return place + int(_AHEAD.unpack_from(data, place)[0])


def _read_number(form: struct.Struct, table: Table, place: int) -> Any:  # noqa: ANN401 - of any type
    return form.unpack_from(table.data, place)[0]


def _read_numbers(dtype: np.dtype[Any], table: Table, place: int) -> Array:
    start = _follow_offset(table.data, place)
    (count,) = _AHEAD.unpack_from(table.data, start)
    return np.frombuffer(table.data, dtype, count, start + _AHEAD.size)


def _read_string(table: Table, place: int) -> bytes:
    return _read_numbers(np.dtype(np.uint8), table, place).tobytes()


def _read_table(kind: str, table: Table, place: int) -> Table:
    return Table(table.data, _follow_offset(table.data, place), kind)


def _read_tables(kind: str, table: Table, place: int) -> Vector:
    return Vector(table.data, _follow_offset(table.data, place), kind)


def _read_union(number: str, kinds: tuple[str, ...], table: Table, place: int) -> Table | None:
    kind = table[number]
    return _read_table(kinds[kind - 1], table, place) if 0 < kind <= len(kinds) else None
