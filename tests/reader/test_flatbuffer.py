"""reader/flatbuffer.py and reader/schema.py: tables as flatc's generated classes write them."""

from __future__ import annotations

import struct
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as generated

from tflite2onnx.reader import schema
from tflite2onnx.reader.flatbuffer import Table, read_root

if TYPE_CHECKING:
    from types import ModuleType

MEMBERS = {kind: fields for union in schema.UNIONS.values() for kind, fields in union.items()}
KINDS = schema.TABLES | MEMBERS


def script() -> ModuleType:
    """Return the module scripts/make_schema.py."""
    path = Path(__file__).parents[2] / "scripts" / "make_schema.py"
    spec = spec_from_file_location("make_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_table(table: Any, kind: str) -> Table:
    """Return an object of a generated class, read from its bytes."""
    builder = flatbuffers.Builder()
    builder.Finish(table.Pack(builder))
    data = memoryview(bytes(builder.Output()))
    return Table(data, struct.unpack_from("<I", data)[0], kind)


def attribute(name: str) -> str:
    """Return the name of a field in a generated class: sharedName for shared_name."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def example(kind: str, position: int) -> Any:
    """Return a value of a type other than the default; None for a table type."""
    element = kind.strip("[]")
    if kind == "string":
        return f"text {position}"
    if not hasattr(np, element):
        return None
    if kind != element:
        return np.arange(position + 2).astype(element)
    return {"bool": True, "float32": position + 0.5}.get(kind, position + 3)


def decode_value(value: Any) -> Any:
    """Return a value as in the generated classes."""
    return value.decode() if isinstance(value, bytes) else value


def test_fields_have_slots_types_and_defaults_of_flatc() -> None:
    """Each field has the slot, type and default value of flatc's class."""
    for kind in KINDS:
        check_fields(kind)


def check_fields(kind: str) -> None:
    """Check the fields of a table."""
    fields = [entry.split(":") for entry in KINDS[kind] if entry != "-"]
    written = getattr(generated, f"{kind}T")()
    table = read_table(written, kind)
    assert list(table) == [name for name, _ in fields], kind
    assert len(table) == len(fields)
    for name, kind_and_default in fields:
        default = getattr(written, attribute(name))
        if "[" in kind_and_default:
            assert len(table[name]) == 0, (kind, name)
        else:
            assert (table[name], type(table[name])) == (default, type(default)), (kind, name)
    values = {name: example(rest.partition("=")[0], i) for i, (name, rest) in enumerate(fields)}
    for name, value in values.items():
        setattr(written, attribute(name), value)
    table = read_table(written, kind)
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(table[name], value, strict=True)
        elif value is not None:
            assert decode_value(table[name]) == value, (kind, name)


def test_the_schema_is_what_the_script_writes() -> None:
    """schema.py equals the script's output, except for fields of newer schema versions."""
    written: dict[str, Any] = {}
    exec(script().text(generated), written)  # noqa: S102 - the script's own output
    theirs = written["TABLES"] | {k: v for u in written["UNIONS"].values() for k, v in u.items()}
    assert KINDS.keys() & theirs.keys() >= {"Model", "Tensor", "Operator", "Conv2DOptions"}
    pairs: list[tuple[Any, Any]] = [
        (KINDS[kind], theirs[kind]) for kind in KINDS.keys() & theirs.keys()
    ]
    enumerations = written["ENUMERATIONS"].items()
    pairs += [(schema.ENUMERATIONS[kind].split(), names.split()) for kind, names in enumerations]
    pairs += [(schema.UNIONS[kind], union) for kind, union in written["UNIONS"].items()]
    for ours, other in pairs:
        for a, b in zip(ours, other, strict=False):
            assert a == b or "-" in (a, b)


def test_tables_within_tables_are_read() -> None:
    """Single tables, vectors of tables, unions, and unions of an unknown kind."""
    blocks = generated.BlockwiseQuantizationT(3, 4, 32)
    quantization = generated.QuantizationParametersT(detailsType=2, details=blocks)
    tensors = [generated.TensorT(name=n, quantization=quantization) for n in ("a", "b")]
    graph = read_table(generated.SubGraphT(tensors), "SubGraph")
    assert [graph["tensors"][i]["name"] for i in range(len(graph["tensors"]))] == [b"a", b"b"]
    for index in (-1, 2):
        with pytest.raises(IndexError):
            _ = graph["tensors"][index]
    details = graph["tensors"][1]["quantization"]["details"]
    assert (details.kind, details["block_size"]) == ("BlockwiseQuantization", 32)
    quantization.detailsType = 77
    table = read_table(quantization, "QuantizationParameters")
    assert (table["details_type"], table["details"]) == (77, None)


def test_fields_missing_in_the_schema_are_ignored() -> None:
    """Newer fields of a file are ignored; an unknown name is a KeyError."""
    written = generated.Conv2DOptionsT(dilationHFactor=5, quantizedBiasType=2)
    table = read_table(written, "Pool2DOptions")
    assert list(table) == [f.split(":")[0] for f in KINDS["Pool2DOptions"]]
    with pytest.raises(KeyError):
        _ = table["dilation_h_factor"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\4\0\0",
        b"\4\0\0\0",
        b"\4\0\0\0\4\0\0",
        b"\4\0\0\0\xff\xff\xff\x7f",
        b"\4\0\0\0\5\0\0\0",
        b"\4\0\0\0\xf0\xff\xff\xff",
        b"\xff\xff\xff\xff\0\0\0\0",
    ],
)
def test_refuses_offsets_outside_the_data(data: bytes) -> None:
    """Offsets before the start or after the end raise an error."""
    with pytest.raises(struct.error):
        read_root(memoryview(data))


def test_vectors_are_read_only_views_on_the_file() -> None:
    """Vectors are read-only views on the file."""
    numbers = read_table(generated.SubGraphT(inputs=[1, 2, 3]), "SubGraph")["inputs"]
    assert numbers.tolist() == [1, 2, 3]
    assert not numbers.flags.owndata
    assert not numbers.flags.writeable


@pytest.mark.parametrize(("name", "raw"), [("inputs", b"\7\0\0\0\5\0\0\0"), ("name", b"main")])
def test_refuses_vectors_longer_than_the_file(name: str, raw: bytes) -> None:
    """A vector or a string must not be longer than the rest of the file."""
    table = read_table(generated.SubGraphT(inputs=[7, 5], name="main"), "SubGraph")
    data = bytearray(table.data)
    length = data.index(raw) - 4
    data[length : length + 4] = struct.pack("<I", 1000)
    damaged = Table(memoryview(data), table.position, "SubGraph")
    with pytest.raises(ValueError, match="buffer is smaller"):
        _ = damaged[name]
