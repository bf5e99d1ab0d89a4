"""What commands print: columns, counted nouns, complaints, and nothing that a terminal obeys."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 2,000 nodes."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines, the cells of a column below each other."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def print_error(model: str, message: str) -> None:
    """Say on stderr what is wrong with a model."""
    named = message.startswith(f"{model} ") or f" {model}: " in message
    place = "" if named else f"{model}: "
    print_lines(sys.stderr, [f"tflite2onnx: {place}{message}"])


def describe_bug(error: Exception) -> str:
    """Return what to say of an error that nobody foresaw."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"please report this bug, with what -v prints ({what})"


def print_lines(stream: TextIO, lines: Iterable[str]) -> None:
    """Print lines, escaped where the terminal, or its encoding, cannot show them."""
    encoding = stream.encoding or "utf-8"
    for line in lines:
        known = printable(line).encode(encoding, "backslashreplace").decode(encoding)
        print(known, file=stream)


def printable(text: str) -> str:
    """Escape what a terminal would obey: names come from the file, and may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
