"""Write docs/operators.md: the operators by their classes and the results of the matrix.

`python -m tests.conformance.operator_table` writes the document. `python -m tests.conformance`
measures the matrix first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.conformance import record
from tests.conformance.rows import ROWS
from tests.conformance.rows.missing import ELSEWHERE, NO_KERNEL
from tests.conformance.spellings import SPELLINGS, Spelling
from tests.conformance.table import PLAIN
from tests.support.facts import OPERATORS as TFLITE
from tflite2onnx.builder.opsets import DEFAULT_OPSET
from tflite2onnx.contrib.flex.names import OTHER_NAMES
from tflite2onnx.contrib.stablehlo.lower_stablehlo import LOWERINGS, SAME
from tflite2onnx.op import list_operators
from tflite2onnx.op.base import Operator

TARGET = Path(__file__).parents[2] / "docs" / "operators.md"

START = """\
# The operators

All {runtime} operators of LiteRT's runtime are converted. The table lists the element types; the
section [Limits](#limits) lists what is not converted. The section [Others](#others) lists custom
operators, TensorFlow's operators, and operators that appear in files but not in runtimes.

All entries are measured. `python -m tests.conformance` builds a model for each case of each
operator ({cases} in all: types, ranks, attributes, shapes that broadcast, constant and computed
operands, special values). It runs the model in LiteRT and compares ONNX Runtime's results: in the
planned layout and in random legal layouts, with all optimizations and with none, with the smallest
possible opset. Models with state run several times. CI runs a sample of the cases.

**Types** are the element types that are converted, each with the largest difference found. Without
a difference the numbers are equal. Differences of floats are parts of the range of the output,
differences of integers are steps ("±1"). *Quantized* integers have a scale. A kernel that reads a
scale accepts only integers with a scale, and other kernels accept only integers without one.
Operators that only move integers accept both.

**float8** (float8_e4m3fn, float8_e5m2) is not in the table, because LiteRT's interpreter has no
arrays of these types. Operators that move elements take float8, and so do TensorFlow's operators of
the same kind: `BATCH_TO_SPACE_ND`, `BROADCAST_TO`, `CONCATENATION`, `DEPTH_TO_SPACE`,
`DYNAMIC_UPDATE_SLICE`, `EXPAND_DIMS`, `FILL`, `GATHER`, `GATHER_ND`, `MIRROR_PAD`, `PACK`, `PAD`,
`PADV2`, `RANK`, `RESHAPE`, `RESIZE_NEAREST_NEIGHBOR`, `REVERSE_V2`, `SELECT`, `SELECT_V2`, `SHAPE`,
`SLICE`, `SPACE_TO_BATCH_ND`, `SPACE_TO_DEPTH`, `SPLIT`, `SPLIT_V`, `SQUEEZE`, `STABLEHLO_GATHER`,
`STRIDED_SLICE`, `TILE`, `TRANSPOSE`, `UNPACK`. All other operators refuse float8. Files with float8
have opset 19 or 21.

**Opset** is the smallest opset that can be requested, followed by the types that need a newer one.
By default models have opset {default}, or the opset that they need. **Category** is how an operator
uses its axes: [Implicit](adding-an-operator.md#axes) operators need an order that ONNX requires,
Transparent operators work in any order, Attribute operators do too because their axes are looked
up, and Terminate operators keep TFLite's order.

| TFLite | what it is | types | becomes | opset | category |
| --- | --- | --- | --- | --- | --- |
"""

_LIMITS = """
## Limits

The table lists what is not converted, where LiteRT's kernel is wrong or leaves a result undefined,
so that there is no result to compare with, and why numbers differ by more than rounding.

| TFLite | type | limit |
| --- | --- | --- |
"""

_OTHERS = """
## Others

These are custom operators, TensorFlow's operators, and operators that appear in files but not in
runtimes. You can add more: [Adding an operator](adding-an-operator.md). Operators that LiteRT has a
kernel for are compared with LiteRT. The others are compared with a reference:
[in numpy](../tests/references), or, for a Flex operator that TFLite has under another name, that
operator in LiteRT.

| TFLite | what it is | types | becomes | opset | category | compared with |
| --- | --- | --- | --- | --- | --- | --- |
"""

_SPELLINGS = """
## Exporters

A layer becomes several operators, in a form of each exporter. These tests build the form as the
exporter writes it, and compare it with LiteRT or with a reference.

| exporter | what is written | operators in the file | test |
| --- | --- | --- | --- |
"""

_STABLEHLO = """
## StableHLO

LiteRT has no kernel for these operators of the file format. They become other operators of TFLite
or TensorFlow, and are compared [with numpy](../tests/contrib/stablehlo).

| StableHLO | becomes |
| --- | --- |
"""


def document() -> str:
    """Return the whole document."""
    classes = list_operators()
    runtime = sorted(TFLITE.keys() - NO_KERNEL)
    known = record.read_record()
    cases = sum(kind.cases for entry in known.values() for kind in entry.kinds.values())
    others = sorted((classes.keys() | ROWS.keys() | OTHER_NAMES.keys()) - set(runtime))
    return "".join(
        (
            START.format(runtime=len(runtime), cases=f"{cases:,}", default=DEFAULT_OPSET),
            _rows(_row(code, classes[code], known.get(code)) for code in runtime),
            _LIMITS,
            _rows(_shared_limits((code, known.get(code)) for code in (*runtime, *others))),
            _OTHERS,
            _rows(_other_cells(code, classes.get(code), known.get(code)) for code in others),
            _STABLEHLO,
            _rows(_lowerings()),
            _SPELLINGS,
            _rows(map(_spelling_cells, SPELLINGS)),
        )
    )


def _spelling_cells(spelling: Spelling) -> tuple[str, ...]:
    operators = ", ".join(f"`{code}`" for code in spelling.operators)
    name = spelling.test.rpartition("/")[2]
    test = f"[`{name}`](../tests/{spelling.test})"
    return spelling.exporter, spelling.written, operators, test


def _lowerings() -> Iterator[tuple[str, str]]:
    """Yield StableHLO's operators without a kernel, and what becomes of them."""
    for name in sorted({*SAME, *LOWERINGS}):
        if name in SAME:
            makes = f"`{SAME[name]}`"
        else:
            text = (LOWERINGS[name].__doc__ or "").splitlines()[0].rstrip(".")
            makes = text.removeprefix("Make ")
        yield f"`STABLEHLO_{name}`", "not converted" if name == "CUSTOM_CALL" else makes


def _rows(rows: Iterable[Iterable[str]]) -> str:
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return "".join(f"| {row} |\n" for row in escaped)


def _row(code: str, cls: type[Operator], entry: record.Operator | None) -> Iterator[str]:
    """Yield the cells of an operator that is converted."""
    yield _link_code(code, cls)
    yield _summary(cls).rstrip(".")
    yield from _measured_cells(code, entry)
    yield cls.category.value


def _measured_cells(code: str, entry: record.Operator | None) -> Iterator[str]:
    """Yield the measured cells: types, ONNX operators, the smallest opset."""
    if entry is None:
        yield f"see {ELSEWHERE[code]}" if code in ELSEWHERE else ""
        yield ""
        yield ""
    else:
        yield ROWS[code].types or _types(entry.kinds)
        yield ", ".join(entry.becomes[:6]) + (", ..." if len(entry.becomes) > 6 else "")
        yield _opsets(entry.kinds)


def _other_cells(
    code: str, cls: type[Operator] | None, entry: record.Operator | None
) -> Iterator[str]:
    """Yield the cells of a runtime, file or custom operator."""
    if code in OTHER_NAMES:
        yield from (f"`{code}`", f"Another name of `{OTHER_NAMES[code]}`", *[""] * 5)
        return
    yield _link_code(code, cls) if cls else f"[`{code}`](../tflite2onnx/contrib/flex/translate.py)"
    yield _summary(cls).rstrip(".") if cls else "TFLite has this operator under another name"
    yield from _measured_cells(code, entry)
    yield cls.category.value if cls else ""
    row = ROWS.get(code)
    yield "" if row is None else "a reference" if row.referred else "LiteRT"


def _link_code(code: str, cls: type[Operator]) -> str:
    source = cls.__module__.replace(".", "/")
    return f"[`{code}`](../{source}.py)"


def _summary(cls: type[Operator]) -> str:
    """Return the first line of a class's docstring, without the operators' names before it."""
    line = (cls.__doc__ or "").strip().splitlines()[0]
    names, colon, rest = line.partition(": ")
    named = colon and {*re.findall(r"[\w.]+", names)} <= {*cls.codes, "and"}
    text = rest if named else line
    is_formula = re.match(r"[b-z] |\w+\(", text)  # such as "x * relu6(x + 3) / 6"
    return text if is_formula else text[:1].upper() + text[1:]


def _types(kinds: Mapping[str, record.Measured]) -> str:
    """Return the types with their differences: plain types first, then quantized types."""
    plain = [
        f"{kind}{_difference(found)}"
        for kind, found in kinds.items()
        if not kind.startswith("quantized ")
    ]
    scaled = [
        f"{kind.removeprefix('quantized ')}{_difference(found)}"
        for kind, found in kinds.items()
        if kind.startswith("quantized ")
    ]
    return "; ".join(
        [
            *([", ".join(plain)] if plain else []),
            *([f"quantized {', '.join(scaled)}"] if scaled else []),
        ]
    )


def _difference(found: record.Measured) -> str:
    """Return the largest difference in a few words."""
    part = f"{found.part:.0e}".replace("e-0", "e-")
    said = [*([part] if found.part else []), *([f"±{found.steps}"] if found.steps else [])]
    return f" ({', '.join(said)})" if said else ""


def _opsets(kinds: Mapping[str, record.Measured]) -> str:
    least = min(found.opset for found in kinds.values())
    newer: dict[int, list[str]] = {}
    for kind, found in kinds.items():
        if found.opset > least:
            newer.setdefault(found.opset, []).append(kind)
    return "; ".join([str(least), *(f"{opset}: {', '.join(newer[opset])}" for opset in newer)])


def _shared_limits(
    entries: Iterable[tuple[str, record.Operator | None]],
) -> Iterator[tuple[str, str, str]]:
    """Yield each limit with its operators, ordered by the first operator."""
    codes: dict[tuple[str, str], list[str]] = {}
    for code, entry in entries:
        for limit in _operator_limits(code, entry):
            codes.setdefault(limit, []).append(f"`{code}`")
    for limit, having in codes.items():
        yield ", ".join(having), *limit


def _operator_limits(code: str, entry: record.Operator | None) -> Iterator[tuple[str, str]]:
    """Yield the unsupported cases of an operator, and the cases with large differences."""
    row = ROWS.get(code)
    if row is None:
        return
    if row.limits:
        yield "", row.limits
    said: dict[str, list[str]] = {}
    for kind, reason in row.without.items():
        said.setdefault(reason, []).append(kind)
    found = {} if entry is None else entry.kinds
    for kind, bound in row.bounds.items():
        # Many operators have the same bound. A bound is listed only if an operator's results are
        # not equal.
        if bound.reason and kind in found and (found[kind].part or found[kind].steps):
            said.setdefault(bound.reason, []).append(kind)
    for reason, types in said.items():
        listed = ", ".join(types) if len(types) < len(PLAIN) else "all others"
        yield listed, reason


if __name__ == "__main__":
    TARGET.write_text(document())
