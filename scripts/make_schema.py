"""Write the TFLite schema in the short form that `tflite2onnx.reader.flatbuffer` reads.

The source is the package ai-edge-litert, whose classes flatc generated from schema.fbs::

    python scripts/make_schema.py > tflite2onnx/reader/schema.py
"""

import usage  # noqa: F401 - packages may be missing

import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType

HEADER = '''\
"""The TFLite schema in a short form, written by scripts/make_schema.py.

A table is its name, then its fields in the order of their slots. A field is name:type, followed by
=default if the default is not 0. [type] is a vector; "-" is the slot of a removed field.

A union has tables with the numbers 1, 2, 3... A field of a union type refers to the table; the slot
before this field has the number of the table.

An enumeration is a list of its names, which have the numbers 0, 1, 2...
"""

from __future__ import annotations

from tflite2onnx.reader.schema_text import parse_tables
'''
ROOT = "Model"
ENUMERATIONS = (
    "ActivationFunctionType",
    "BuiltinOperator",
    "FullyConnectedOptionsWeightsFormat",
    "MirrorPadMode",
    "Padding",
    "TensorType",
)
# The type of each union field, which the generated classes do not contain.
UNIONS = {
    "builtin_options": "BuiltinOptions",
    "builtin_options2": "BuiltinOptions2",
    "details": "QuantizationDetails",
    "array_segments": "SparseIndexVector",
    "array_indices": "SparseIndexVector",
}
WIDTH = 100


def text(schema: ModuleType) -> str:
    """Return the text of the module tflite2onnx/reader/schema.py."""
    unions = {u: names_by_number(schema, u)[1:] for u in sorted(set(UNIONS.values()))}
    members = {name for union in unions.values() for name in union}
    tables = [t for t in reachable_tables(schema, ROOT, {}) if t not in members]
    lines = [HEADER, 'TABLES = parse_tables("""', *table_lines(schema, tables), '""")']
    lines += ["", "UNIONS = {"]
    for union, names in unions.items():
        lines += [f'    "{union}": parse_tables("""', *table_lines(schema, names), '"""),']
    lines += ["}", "", "ENUMERATIONS = {"]
    for name in ENUMERATIONS:
        lines += string_lines(name, " ".join(names_by_number(schema, name)))
    return "\n".join([*lines, "}", ""])


def names_by_number(schema: ModuleType, enumeration: str) -> list[str]:
    """Return the names of an enumeration in the order of their numbers, which have no gaps."""
    every = vars(getattr(schema, enumeration)).items()
    # Python 3.13 adds attributes such as __firstlineno__.
    members = [each for each in every if each[0][0] != "_"]
    names = {number: name for name, number in members if isinstance(number, int)}
    return [names[i] for i in range(len(names))]


def reachable_tables(schema: ModuleType, table: str, seen: dict[str, None]) -> dict[str, None]:
    """Return a table, and the tables of its fields; unions are omitted."""
    seen[table] = None
    for field in fields(schema, table):
        inner = field.partition(":")[2].strip("[]")
        if hasattr(schema, inner + "T") and inner not in seen:
            reachable_tables(schema, inner, seen)
    return seen


def table_lines(schema: ModuleType, tables: Sequence[str]) -> Iterator[str]:
    """Yield the lines of tables; tables without fields share lines."""
    texts = {table: " ".join([table, *fields(schema, table)]) for table in tables}
    for empty, group in itertools.groupby(tables, lambda table: texts[table] == table):
        lines = [texts[table] for table in group]
        for line in [" ".join(lines)] if empty else lines:
            yield from textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False)


def string_lines(key: str, value: str) -> list[str]:
    """Return the lines of a string in a dictionary."""
    line = f'    "{key}": "{value}",'
    if len(line) <= WIDTH:
        return [line]
    parts = textwrap.wrap(value, WIDTH - len('        " "'), break_long_words=False)
    quoted = [f'        "{part} "' for part in parts[:-1]] + [f'        "{parts[-1]}"']
    return [f'    "{key}": (', *quoted, "    ),"]


def fields(schema: ModuleType, table: str) -> list[str]:
    """Return the fields of a table as written in the schema."""
    methods = inspect.getmembers(getattr(schema, table), inspect.isfunction)
    bases = [(n, m) for n, m in methods if not re.search("^Init$|.(AsNumpy|Length|IsNone)$", n)]
    slots = dict(field(name, inspect.getsource(method)) for name, method in bases)
    return [slots.get(i, "-") for i in range(1 + max(slots, default=-1))]


def field(name: str, accessor: str) -> tuple[int, str]:
    """Return the slot of a field, and the field as written in the schema."""
    (place,) = re.findall(r"Offset\((\d+)\)", accessor)
    name, kind = snake_case(name), kind_of(accessor)
    kind = UNIONS[name] if kind == "Union" else kind
    kind = f"[{kind}]" if ".Vector(" in accessor else kind
    default = re.findall(r"return (.+)\n", accessor)[-1]
    return (
        (int(place) - 4) // 2,
        f"{name}:{kind}" + ("" if default in ("0", "0.0", "False", "None") else f"={default}"),
    )


def kind_of(accessor: str) -> str:
    """Return the type of a field, or of the elements of a vector."""
    for pattern in (r"tab\.(Union)\(", r"obj = (\w+)\("):
        if found := re.search(pattern, accessor):
            return found[1]
    (kind,) = re.findall(r"tab\.(String)\(|Get\([\w.]*?(\w+)Flags,", accessor)
    return "".join(kind).lower()


def snake_case(name: str) -> str:
    """Return SharedName as shared_name."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


if __name__ == "__main__":
    sys.stdout.write(text(import_module("ai_edge_litert.schema_py_generated")))
