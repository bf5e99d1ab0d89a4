"""Writes `.litertlm` files and messages of protocol buffers for tests."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import flatbuffers

from tests.support.build import Build
from tests.support.pack import pack
from tflite2onnx.reader.containers.litertlm_schema import SECTION_TYPES, UNIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

BLOCK = 1 << 14
_TYPES = {name: i + 1 for i, name in enumerate(UNIONS["VData"])}
_PREPEND = {
    "Bool": "Bool", "Int8": "Int8", "UInt8": "Uint8", "Int16": "Int16", "UInt16": "Uint16",
    "Int32": "Int32", "UInt32": "Uint32", "Int64": "Int64", "UInt64": "Uint64",
    "Float32": "Float32", "Double": "Float64",
}  # fmt: skip


class Part(NamedTuple):
    """A section: the name of its type, its bytes, and items as {key: (type, value)}."""

    kind: str
    data: bytes
    items: Mapping[str, tuple[str, Any]] = {}


def model_part(data: bytes, role: str = "prefill_decode", kind: str = "TFLiteModel") -> Part:
    """Return the section of a model or of its weights."""
    return Part(kind, data, {"model_type": ("StringValue", f"tf_lite_{role}")})


def compress(text: bytes) -> bytes:
    """Return a tokenizer as a section holds it."""
    return struct.pack("<Q", len(text)) + zlib.compress(text)


def pack_litertlm(
    parts: Sequence[Part],
    metadata: Mapping[str, tuple[str, Any]] | None = None,
    *,
    version: tuple[int, int, int] = (1, 7, 0),
    times: int = 1,
    move: Callable[[int, int, int], tuple[int, int]] = lambda _, begin, end: (begin, end),
) -> bytes:
    """Return a file.

    The header lists the metadata a number of times. `move` changes the declared place of the
    section with an index.
    """
    places, body = [], b""
    for i, part in enumerate(parts):
        begin = BLOCK + len(body)
        body += part.data
        places.append(move(i, begin, BLOCK + len(body)))
        body += bytes(-len(body) % BLOCK)
    header = _pack_header(parts, places, metadata or {}, times)
    start = struct.pack("<8s3I4xQ", b"LITERTLM", *version, 32 + len(header)) + header
    last = BLOCK + sum(-(-len(p.data) // BLOCK) * BLOCK for p in parts[:-1])
    return (start.ljust(BLOCK, b"\0") + body)[: last + len(parts[-1].data)]


def _pack_header(
    parts: Sequence[Part],
    places: Sequence[tuple[int, int]],
    metadata: Mapping[str, tuple[str, Any]],
    times: int,
) -> bytes:
    b = flatbuffers.Builder(0)
    objects = []
    for part, (begin, end) in zip(parts, places, strict=True):
        items = _pack_vector(b, [_pack_pair(b, *each) for each in part.items.items()])
        b.StartObject(4)
        b.PrependUOffsetTRelativeSlot(0, items, 0)
        b.PrependUint64Slot(1, begin, 0)
        b.PrependUint64Slot(2, end, 0)
        number = SECTION_TYPES.index(part.kind) if part.kind in SECTION_TYPES else int(part.kind)
        b.PrependUint8Slot(3, number, 0)
        objects.append(b.EndObject())
    sections = _pack_table(b, _pack_vector(b, objects))
    entries = _pack_vector(b, [_pack_pair(b, *each) for each in metadata.items()] * times)
    b.Finish(_pack_table(b, _pack_table(b, entries), sections))
    return bytes(b.Output())


def _pack_table(b: flatbuffers.Builder, *fields: int) -> int:
    b.StartObject(len(fields))
    for slot, field in enumerate(fields):
        b.PrependUOffsetTRelativeSlot(slot, field, 0)
    return int(b.EndObject())


def _pack_vector(b: flatbuffers.Builder, tables: Sequence[int]) -> int:
    b.StartVector(4, len(tables), 4)
    for table in reversed(tables):
        b.PrependUOffsetTRelative(table)
    return int(b.EndVector())


def _pack_pair(b: flatbuffers.Builder, key: str, typed: tuple[str, Any]) -> int:
    kind, value = typed
    name = b.CreateString(key)
    text = b.CreateString(value) if kind == "StringValue" else 0
    b.StartObject(1)
    if text:
        b.PrependUOffsetTRelativeSlot(0, text, 0)
    else:
        getattr(b, f"Prepend{_PREPEND[kind]}Slot")(0, value, 0)
    content = b.EndObject()
    b.StartObject(3)
    b.PrependUOffsetTRelativeSlot(0, name, 0)
    b.PrependUint8Slot(1, _TYPES[kind], 0)
    b.PrependUOffsetTRelativeSlot(2, content, 0)
    return int(b.EndObject())


def message(*fields: tuple[int, int | float | str | bytes]) -> bytes:
    """Return a message with fields by number: integers, floats of 4 bytes, texts, or messages."""
    made = b""
    for number, value in fields:
        if isinstance(value, int):
            made += varint(number << 3) + varint(value % (1 << 64))
        elif isinstance(value, float):
            made += varint(number << 3 | 5) + struct.pack("<f", value)
        else:
            raw = value.encode() if isinstance(value, str) else value
            made += varint(number << 3 | 2) + varint(len(raw)) + raw
    return made


def varint(number: int) -> bytes:
    """Return a number in groups of 7 bits."""
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


def build_external(name: str, values: np.ndarray[Any, Any]) -> tuple[bytes, bytes]:
    """Return a model that adds external weights to its input, and the file of the weights."""
    m = Build()
    x = m.input([3], name="x")
    weights = m.constant(values)
    m.output(*m.op("ADD", [x, weights], [[3]]))
    model = m.model()
    (index,) = [i for i, b in enumerate(model.buffers) if b.data is not None and len(b.data) == 12]
    for tensor in model.subgraphs[0].tensors:
        if tensor.buffer == index:
            tensor.buffer, tensor.externalBuffer = 0, 7
    model.externalBufferGroups = [group(name)]
    model.externalBuffers = [slice_of(7, 4, 12)]
    return pack(model), b"skip" + values.tobytes()


def group(name: str) -> Any:
    from ai_edge_litert import schema_py_generated as schema  # noqa: PLC0415 - slow to import

    made = schema.ExternalBufferGroupT()
    made.name = name
    return made


def slice_of(number: int, offset: int, length: int, packing: str | None = None) -> Any:
    from ai_edge_litert import schema_py_generated as schema  # noqa: PLC0415 - slow to import

    made = schema.ExternalBufferT()
    made.id, made.group, made.offset, made.length = number, 0, offset, length
    made.packing = packing
    return made
