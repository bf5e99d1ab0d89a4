"""Damage to models: other bytes, other values in tables, and other structures.

The same model and seed give the same damage.
"""

from __future__ import annotations

import io
import random
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.numbers import FLOATS, INTEGERS
from tests.fuzz.structure import CHANGES
from tests.support import pack
from tests.support.litertlm import BLOCK
from tests.support.task import pack_files
from tflite2onnx.reader.containers.litertlm import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.facts import Table


def mutate(data: bytes, seed: int) -> bytes:
    """Return a model with some changes to its bytes or tables; none with seed 0."""
    if not seed:
        return data
    generator = random.Random(seed)
    count = generator.choice((1, 1, 1, 2, 3))
    if generator.random() < 0.12:
        return _mutate_bytes(data, generator, count)
    return _mutate_tables(data, generator, count)


def mutate_bytes(data: bytes, seed: int) -> bytes:
    """Return a file with some changes to its bytes; none with seed 0."""
    if not seed:
        return data
    generator = random.Random(seed)
    return _mutate_bytes(data, generator, generator.choice((1, 1, 1, 2, 3)))


def mutate_container(data: bytes, seed: int) -> bytes:
    """Return a `.litertlm` file with changes to its header, a section, or any bytes.

    A file with seed 0 has no changes. Most bytes of a file are padding, so that changes anywhere
    would rarely change what is read. An archive has changes to one of its files.
    """
    if not seed:
        return data
    if not data.startswith(MAGIC):
        return _mutate_archive(data, seed)
    generator = random.Random(seed)
    (end,) = struct.unpack_from("<Q", data, 24)
    section = generator.randrange(BLOCK, len(data), BLOCK)
    places = generator.choice(
        (range(end), range(end), range(section, min(section + 1024, len(data))), range(len(data)))
    )
    return _mutate_bytes(data, generator, generator.choice((1, 1, 1, 2, 3)), places)


def _mutate_archive(data: bytes, seed: int) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(files)[seed % len(files)]
    change = mutate if files[name][4:8] == b"TFL3" else mutate_bytes
    return pack_files({**files, name: change(files[name], seed)})


def _mutate_bytes(
    data: bytes, generator: random.Random, count: int, places: Sequence[int] = ()
) -> bytes:
    """Return bytes with changes at some places, by default anywhere."""
    damaged = bytearray(data)
    for _ in range(count):
        at = generator.choice(places or range(len(damaged)))
        match generator.randrange(4):
            case 0:
                damaged[at] ^= 1 << generator.randrange(8)
            case 1:
                damaged[at] = generator.randrange(256)
            case 2:  # any field: an offset, a length or a number
                number = generator.choice(INTEGERS) & 0xFFFFFFFF
                at -= at % 4
                damaged[at : at + 4] = struct.pack("<I", number)[: len(damaged) - at]
            case 3:  # removed bytes
                other, size = generator.randrange(len(damaged)), generator.choice((4, 8, 32))
                piece = damaged[other : other + size]
                damaged[at : at + len(piece)] = piece
    return bytes(damaged)


def _mutate_tables(data: bytes, generator: random.Random, count: int) -> bytes:
    for _ in range(100):
        model = schema.ModelT.InitFromPackedBuf(data)
        try:
            with np.errstate(over="ignore"):  # doubled sizes and scales may wrap
                for _ in range(count):
                    generator.choice((_change_field, *CHANGES))(model, generator)
            return pack(model)
        except (struct.error, TypeError, ValueError, OverflowError, AttributeError, LookupError):
            continue  # the file format cannot store the change, or the model has nothing to change
    return data


def _change_field(model: Table, generator: random.Random) -> None:
    """Change one field of a table."""
    places = [(t, f) for t in tables_of(model) for f, v in vars(t).items() if v is not None]
    table, field = generator.choice(places)
    setattr(table, field, _other_value(getattr(table, field), generator))


def tables_of(table: Table) -> Iterator[Table]:
    """Yield a table and all tables in it; the model's own come before those of operators."""
    yield table
    for value in vars(table).values():
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "Pack"):
                yield from tables_of(each)


def _other_value(value: Any, generator: random.Random) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, (bool, np.bool_)):
        return not value
    if isinstance(value, (int, np.integer)):
        return generator.choice((*INTEGERS, int(value) + 1, int(value) - 1))
    if isinstance(value, (float, np.floating)):
        return generator.choice(FLOATS)
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
