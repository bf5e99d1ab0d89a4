"""Write docs/operators.md: the operators, as their classes describe themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tflite2onnx.op import OPERATORS, OURS
from tflite2onnx.op.base import Operator

TARGET = Path(__file__).parents[1] / "docs" / "operators.md"

START = """\
# The operators

Made by `scripts/make_operator_table.py` from the classes in [tflite2onnx/op](../tflite2onnx/op);
`tflite2onnx ops` prints the names. The category says how an operator stands to its axes:
[Implicit](adding-an-operator.md#how-it-treats-its-axes) ones want an order of ONNX's, Transparent
ones take any, Attribute ones too once the axes that they are told are looked up, and Terminate
ones keep TFLite's.

| TFLite | category | what it is | class |
| --- | --- | --- | --- |
"""

def document() -> str:
    """Return the whole document."""
    codes = sorted(code for code, cls in OPERATORS.items() if cls not in OURS)
    rows = "".join(f"| {' | '.join(row(code))} |\n" for code in codes)
    return START + rows


def row(code: str) -> Iterator[str]:
    """Yield the cells of an operator."""
    cls = OPERATORS[code]
    source = cls.__module__.rpartition(".")[2]
    yield f"`{code}`" + (" (custom)" if cls.custom else "")
    yield cls.category.value
    yield (summary(cls).rstrip(".") + types(cls, code)).replace("|", "\\|")
    yield f"[{cls.__name__}](../tflite2onnx/op/{source}.py)"


def summary(cls: type[Operator]) -> str:
    """Return the first line of a class's docstring, without the operators' names before it."""
    line = (cls.__doc__ or "").strip().splitlines()[0]
    names, colon, rest = line.partition(": ")
    named = colon and {*re.findall(r"\w+", names)} <= {*cls.codes, "and"}
    text = rest if named else line
    return text[:1].upper() + text[1:]


def types(cls: type[Operator], code: str) -> str:
    """Return the element types of an operator that is a row of a table."""
    listed = getattr(getattr(cls, "rows", {}).get(code), "types", "")
    return f" ({', '.join(listed.split())})" if listed else ""


if __name__ == "__main__":
    TARGET.write_text(document())
    print(f"wrote {TARGET}")
