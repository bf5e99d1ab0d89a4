"""Models that are no more what their authors made: damaged bytes, and damaged tables.

The same model, seed and number of changes give the same damage.
"""

from __future__ import annotations

import math
import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.support import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.facts import Table

# Sizes, indices, axes and offsets that code is not made for.
_INTEGERS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    16,
    127,
    128,
    255,
    256,
    1000,
    32767,
    65535,
    65536,
    1 << 20,
    1 << 24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    -1,
    -2,
    -3,
    -4,
    -7,
    -128,
    -32768,
    -(2**31),
)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, math.inf, -math.inf, math.nan)


def mutate(data: bytes, seed: int) -> bytes:
    """Return a model with a few changes to its bytes or its tables; none with seed 0."""
    if not seed:
        return data
    generator = random.Random(seed)
    count = generator.choice((1, 1, 1, 2, 3))
    if generator.random() < 1 / 3:
        return _mutate_bytes(data, generator, count)
    return _mutate_tables(data, generator, count)


def _mutate_bytes(data: bytes, generator: random.Random, count: int) -> bytes:
    damaged = bytearray(data)
    for _ in range(count):
        at = generator.randrange(len(damaged))
        match generator.randrange(4):
            case 0:
                damaged[at] ^= 1 << generator.randrange(8)
            case 1:
                damaged[at] = generator.randrange(256)
            case 2:  # an offset, a length, a number
                number = generator.choice(_INTEGERS) & 0xFFFFFFFF
                at -= at % 4
                damaged[at : at + 4] = struct.pack("<I", number)[: len(damaged) - at]
            case 3:  # two parts become one
                other, size = generator.randrange(len(damaged)), generator.choice((4, 8, 32))
                piece = damaged[other : other + size]
                damaged[at : at + len(piece)] = piece
    return bytes(damaged)


def _mutate_tables(data: bytes, generator: random.Random, count: int) -> bytes:
    for _ in range(100):
        model = schema.ModelT.InitFromPackedBuf(data)
        for _ in range(count):
            places = [(t, f) for t in _tables(model) for f, v in vars(t).items() if v is not None]
            table, field = generator.choice(places)
            setattr(table, field, _other_value(getattr(table, field), generator))
        try:
            return pack(model)
        except (struct.error, TypeError, ValueError, OverflowError, AttributeError, IndexError):
            continue  # no file can say this
    return data


def _tables(table: Table) -> Iterator[Table]:
    """Yield a table and all that it holds; a model's own before the operators' and tensors'."""
    yield table
    for value in vars(table).values():
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "Pack"):
                yield from _tables(each)


def _other_value(value: Any, generator: random.Random) -> Any:
    """Return something else of the same kind."""
    if isinstance(value, (bool, np.bool_)):
        return not value
    if isinstance(value, (int, np.integer)):
        return generator.choice((*_INTEGERS, int(value) + 1, int(value) - 1))
    if isinstance(value, (float, np.floating)):
        return generator.choice(_FLOATS)
    if isinstance(value, (bytes, str)):
        return generator.choice((b"", b"x", bytes(value if isinstance(value, bytes) else b"") * 2))
    if isinstance(value, (list, np.ndarray)):
        return _other_list(value, generator)
    return None if generator.random() < 0.5 else value


def _other_list(value: Any, generator: random.Random) -> Any:
    items = list(value)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and generator.random() < 0.5:
        return value[: generator.randrange(value.size + 1)]
    match generator.randrange(6):
        case 0:
            items = []
        case 1 if items:
            items.append(generator.choice(items))
        case 2 if items:
            items.pop(generator.randrange(len(items)))
        case 3 if items:
            generator.shuffle(items)
        case _ if items:
            at = generator.randrange(len(items))
            plain = not hasattr(items[at], "Pack")
            items[at] = _other_value(items[at], generator) if plain else generator.choice(items)
    if not isinstance(value, np.ndarray):
        return items
    return np.array(items).astype(value.dtype) if items else np.zeros(0, value.dtype)
