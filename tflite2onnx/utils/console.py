"""Console output: columns, plurals, errors; control characters are escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 2,000 nodes."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(name: object, longest: int = 30) -> str:
    """Return the end of a name, the part that distinguishes it from other names."""
    words = str(name)
    return words if len(words) <= longest else "\N{HORIZONTAL ELLIPSIS}" + words[1 - longest :]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def print_error(model: str, message: str) -> None:
    """Print an error on stderr, with the name of the model unless the message has it."""
    named = message.startswith(f"{model} ") or f" {model}: " in message
    place = "" if named else f"{model}: "
    print_lines(sys.stderr, [f"tflite2onnx: {place}{message}"])


def describe_bug(error: Exception) -> str:
    """Return a message for an unexpected exception."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this is a bug in tflite2onnx; please report it with the output of -v ({what})"


def print_lines(stream: TextIO, lines: Iterable[str]) -> None:
    """Print lines; control characters, and those that the stream cannot encode, are escaped."""
    encoding = stream.encoding or "utf-8"
    for line in lines:
        shown = printable(line).encode(encoding, "backslashreplace").decode(encoding)
        print(shown, file=stream)


def printable(text: str) -> str:
    """Escape control characters, which names in a file may contain and a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
