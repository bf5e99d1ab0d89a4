"""Writer of TFLite metadata: dicts to a flatbuffer, by the schema of the reader."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np

from tflite2onnx.reader.metadata_schema import IDENTIFIER, TABLES, UNIONS

_KINDS = TABLES | {kind: fields for union in UNIONS.values() for kind, fields in union.items()}


def pack_metadata(metadata: dict[str, Any], kind: str = "ModelMetadata") -> bytes:
    """Return a table of a kind as a file; the table of a union is (its kind, a dict)."""
    builder = flatbuffers.Builder(0)
    builder.Finish(_table(builder, kind, metadata), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _table(builder: flatbuffers.Builder, kind: str, values: dict[str, Any]) -> int:
    fields = [f.partition(":")[::2] for f in _KINDS[kind]]
    for name, of in fields:
        if of in UNIONS and name in values:
            member = values[name][0]
            values = {**values, f"{name}_type": 1 + list(UNIONS[of]).index(member)}
    slots = {
        i: (of, _value(builder, of, values[name]))
        for i, (name, of) in enumerate(fields)
        if name in values
    }
    builder.StartObject(len(fields))
    for i, (of, value) in slots.items():
        number = {"int8": "Int8", "uint8": "Uint8", "uint32": "Uint32", "float32": "Float32"}
        number |= {"int32": "Int32", "bool": "Bool"}
        if of in number:
            getattr(builder, f"Prepend{number[of]}Slot")(i, value, None)
        else:
            builder.PrependUOffsetTRelativeSlot(i, value, 0)
    position: int = builder.EndObject()
    return position


def _value(builder: flatbuffers.Builder, of: str, value: Any) -> Any:
    if of == "string":
        return builder.CreateString(value)
    if of in UNIONS:
        return _table(builder, *value)
    if of in _KINDS:
        return _table(builder, of, value)
    if of in ("[float32]", "[int32]", "[uint8]", "[uint32]"):
        return builder.CreateNumpyVector(np.array(value, of.strip("[]")))
    if of.startswith("["):
        positions = [_table(builder, of.strip("[]"), each) for each in value]
        builder.StartVector(4, len(positions), 4)
        for position in reversed(positions):
            builder.PrependUOffsetTRelative(position)
        return builder.EndVector()
    return value
