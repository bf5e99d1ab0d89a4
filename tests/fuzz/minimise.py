"""Reduce the file of a fault: remove all parts that do not affect the fault."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.mutate import tables_of
from tests.support import pack

if TYPE_CHECKING:
    from tests.support.facts import Table

_LONGEST_LIST = 64  # lists whose items are removed one at a time


def minimise(data: bytes, is_same: Callable[[bytes], bool]) -> bytes:
    """Return the smallest file found for which `is_same` holds; it must hold for `data`."""
    while True:
        smaller = (each for each in _smaller_files(data) if len(each) < len(data) and is_same(each))
        found = next(smaller, None)
        if found is None:
            return data
        data = found


def _smaller_files(data: bytes) -> Iterator[bytes]:
    """Yield files without one part; a file that cannot be read is shortened instead."""
    try:
        count = sum(1 for _ in _removals(schema.ModelT.InitFromPackedBuf(data)))
    except (struct.error, ValueError, TypeError, IndexError):
        yield from (data[: len(data) * part // 8] for part in range(4, 8))
        return
    for number in range(count):
        model = schema.ModelT.InitFromPackedBuf(data)
        table, field, value = list(_removals(model))[number]
        setattr(table, field, value)
        try:
            yield pack(model)
        except (struct.error, TypeError, ValueError, AttributeError):
            continue


def _removals(model: Table) -> Iterator[tuple[Table, str, Any]]:
    """Yield fields with smaller values, the largest parts first."""
    for table in tables_of(model):
        for field, value in vars(table).items():
            if value is None or isinstance(value, (int, float)):
                continue
            yield table, field, None
            if isinstance(value, (list, np.ndarray)) and 1 < len(value) <= _LONGEST_LIST:
                for i in range(len(value)):
                    rest = [*value[:i], *value[i + 1 :]]
                    yield table, field, rest if isinstance(value, list) else _array(rest, value)


def _array(items: list[Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array(items, like.dtype)
