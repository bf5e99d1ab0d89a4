"""tflite2onnx/reader/flatbuffer.py: the same fields as the package tflite reads.

The classes of the package tflite are generated from an older schema.fbs by flatc, as those of
ai-edge-litert in test_flatbuffer.py are from a newer one. They are read here, from real files.

    python -m tests.reader.test_tflite_package

prints how long both readers take for all fields of all models in assets/models.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
import tflite

from tflite2onnx.reader import schema
from tflite2onnx.reader.flatbuffer import Table, Vector, read_root

MODELS = sorted((Path(__file__).parents[2] / "assets" / "models").glob("*.tflite"))
MEMBERS = {kind: fields for union in schema.UNIONS.values() for kind, fields in union.items()}
KINDS = schema.TABLES | MEMBERS
# What the schema has got since version 2.18 of the package: tables, and fields of older tables.
NEWER_TABLES = {
    "BlockwiseQuantization",
    "ExternalBuffer",
    "ExternalBufferGroup",
    "MultiAxisQuantization",
    "StablehloCaseOptions",
}
NEWER_FIELDS = {
    "Model.ExternalBufferGroups",
    "Model.ExternalBuffers",
    "Tensor.ExternalBuffer",
    "FullyConnectedOptions.QuantSpec",
}
# Accessors that flatc generates for no field, and the ends of further accessors of a field.
NO_FIELDS = {"Init", "GetRootAs"}
ENDS = ("Length", "AsNumpy", "IsNone", "BufferHasIdentifier")
RUNS = 5


@cache
def accessor(name: str) -> str:
    """Return the method of a generated class for a field: SharedName for shared_name."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def fields_of(kind: str) -> set[str]:
    """Return the accessors of the fields in our schema."""
    names = (entry.partition(":")[0] for entry in KINDS[kind].split())
    return {accessor(name) for name in names if name != "-"}


def their_fields(kind: str) -> set[str]:
    """Return the accessors of the fields in the package's class."""
    names = {name for name in vars(getattr(tflite, kind)) if name[0] != "_"}
    names = {n for n in names if n not in NO_FIELDS and not n.startswith("GetRootAs")}
    return {n for n in names if not any(n == f"{m}{e}" for m in (*names, kind) for e in ENDS)}


def read_ours(table: Table) -> Any:
    """Return a table of our reader as dicts and lists; fields at their defaults are left out."""

    def plain(value: Any) -> Any:
        if isinstance(value, Table):
            return read_ours(value)
        if isinstance(value, (Vector, tuple)):
            return [read_ours(value[i]) for i in range(len(value))]
        return value.tolist() if isinstance(value, np.ndarray) else value

    return {
        accessor(name): plain(table[name])
        for name in table
        if table.offset_of(name) is not None
        and f"{table.kind}.{accessor(name)}" not in NEWER_FIELDS
    }


def read_theirs(table: Any, kind: str) -> Any:
    """Return a table of the package as dicts and lists, with the fields that the file has."""
    offset = table._tab.Offset  # noqa: SLF001 - tells whether the file has a field
    return {
        method: read_their_field(table, method, field)
        for place, method, field in slots_of(kind)
        if offset(place)
    }


@cache
def slots_of(kind: str) -> list[tuple[int, str, str]]:
    """Return the slot, the accessor and the type of the fields that the package knows."""
    entries = [entry.partition(":") for entry in KINDS[kind].split()]
    return [
        (4 + 2 * i, accessor(name), field.partition("=")[0])
        for i, (name, _, field) in enumerate(entries)
        if name != "-" and f"{kind}.{accessor(name)}" not in NEWER_FIELDS
    ]


def read_their_field(table: Any, method: str, field: str) -> Any:
    """Return a field of a table of the package; `field` is its type in our schema."""
    if field.startswith("["):
        element, length = field.strip("[]"), getattr(table, f"{method}Length")()
        if element in KINDS:
            return [read_theirs(getattr(table, method)(i), element) for i in range(length)]
        return getattr(table, f"{method}AsNumpy")().tolist() if length else []
    value = getattr(table, method)()
    if field in schema.UNIONS:
        number = getattr(table, f"{method}Type")()
        kind = [*schema.UNIONS[field]][number - 1]
        member = getattr(tflite, kind)()
        member.Init(value.Bytes, value.Pos)
        return read_theirs(member, kind)
    return read_theirs(value, field) if field in KINDS else value


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_each_table(kind: str) -> None:
    """Our schema has the tables and fields of the package, and those that are newer."""
    assert hasattr(tflite, kind) == (kind not in NEWER_TABLES)
    if kind not in NEWER_TABLES:
        newer = {name.partition(".")[2] for name in NEWER_FIELDS if name.startswith(f"{kind}.")}
        assert fields_of(kind) == their_fields(kind) | newer


@pytest.mark.parametrize("path", MODELS, ids=lambda path: str(path.stem))
def test_fields_of_models(path: Path) -> None:
    """Both readers find the same fields, elements and tables in a file."""
    data = path.read_bytes()
    ours = read_ours(read_root(memoryview(data)))
    assert ours == read_theirs(tflite.Model.GetRootAsModel(data, 0), "Model")
    assert ours["Subgraphs"][0]["Operators"]


def test_models_have_many_fields() -> None:
    """The comparison covers the tables that every conversion reads."""
    assert len(MODELS) > 10
    found = [read_ours(read_root(memoryview(path.read_bytes()))) for path in MODELS]
    tensors = [t for each in found for graph in each["Subgraphs"] for t in graph["Tensors"]]
    assert any("Quantization" in tensor for tensor in tensors)
    operators = [op for each in found for graph in each["Subgraphs"] for op in graph["Operators"]]
    assert any("BuiltinOptions" in op for op in operators)


def measure_readers() -> tuple[float, float]:
    """Return the shortest times that both readers take for all fields of all models, in ms."""
    files = [path.read_bytes() for path in MODELS]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        start = perf_counter()
        for data in files:
            read_ours(read_root(memoryview(data)))
        middle = perf_counter()
        for data in files:
            read_theirs(tflite.Model.GetRootAsModel(data, 0), "Model")
        times[0].append(middle - start)
        times[1].append(perf_counter() - middle)
    return 1e3 * min(times[0]), 1e3 * min(times[1])


if __name__ == "__main__":
    print("flatbuffer.py: {:.1f} ms, package tflite: {:.1f} ms".format(*measure_readers()))  # noqa: T201 - the result
