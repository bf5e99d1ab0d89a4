"""Console output: columns, plurals, errors; control characters are escaped."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import compress
from logging import WARNING, Handler, Logger, LogRecord, getLogger
from shutil import get_terminal_size
from tempfile import TemporaryFile
from textwrap import wrap
from typing import NamedTuple, TextIO

_NARROW = 10  # characters: texts of the second column are not written below a narrower first column
_STDERR = 2
_PIPE_WIDTH = 120  # columns of a table in a file or a pipe
_SHORTEST = 20  # characters that a shortened name keeps at least
_INDENT = 4  # characters before the second line of a row, and before the rest of a broken line


class Colour(Enum):
    """A colour of a terminal, as its number in ISO 6429."""

    RED = 31
    GREEN = 32
    YELLOW = 33


@contextmanager
def filter_stderr(is_shown: Callable[[bytes], bool]) -> Iterator[None]:
    """Keep all lines on file descriptor 2, by libraries too; at the end print those to show."""
    try:
        stderr = os.dup(_STDERR)
    except OSError:  # the stream is closed
        yield
        return
    with TemporaryFile() as file:
        os.dup2(file.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            file.seek(0)
            os.write(_STDERR, b"".join(line for line in file if is_shown(line)))


class _Handler(Handler):
    """Passes log records to a function."""

    def __init__(self, handle: Callable[[LogRecord], None]) -> None:
        super().__init__()
        self._handle = handle

    def emit(self, record: LogRecord) -> None:
        self._handle(record)


@contextmanager
def handle_records(handle: Callable[[LogRecord], None]) -> Iterator[Logger]:
    """Pass the log records of the package to a function, and to no other handler of its logger."""
    logger = getLogger("tflite2onnx")
    handlers, level = logger.handlers, logger.level
    logger.handlers = [_Handler(handle)]
    try:
        yield logger
    finally:
        logger.handlers = handlers
        logger.setLevel(level)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: 1 node, 2,000 nodes."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(name: object, longest: int = 30) -> str:
    """Return a name without its middle if it is too long: its two ends distinguish it."""
    words = str(name)
    if len(words) <= longest:
        return words
    kept = longest - 1
    return f"{words[: kept // 2]}\N{HORIZONTAL ELLIPSIS}{words[kept // 2 - kept :]}"


def shorten_words(cell: str, longest: int) -> str:
    """Return a sentence whose names are shortened, and a single name as it is."""
    words = cell.split(" ")
    return " ".join(shorten(word, longest) for word in words) if words[1:] else cell


class TextTable(NamedTuple):
    """Rows of cells that `print_lines` aligns in columns.

    Paths are not shortened (`shortens`), so that they can be copied.
    """

    rows: Sequence[Sequence[str]]
    shortens: bool = True

    def align(self, limit: int) -> Iterator[str]:
        """Yield lines of at most `limit` characters; empty columns are left out.

        Names are shortened in the middle, and the last column is broken at spaces. If the columns
        do not fit even so, each row becomes several lines, which are indented from the second on.
        A word that is wider than the limit, and is not shortened, is not broken.
        """
        filled = [any(column) for column in zip(*self.rows, strict=True)]
        rows = [[escape_text(cell) for cell in compress(row, filled)] for row in self.rows]
        if self.shortens:
            rows = _shorten_names(rows, limit)
        widths = _measure_columns(rows)
        indent = widths[0] + 2 if widths and widths[0] <= _NARROW else _INDENT
        groups = _group_columns(widths, limit, indent)
        for row in rows:
            for group in groups:
                cells = [(row[i], widths[i]) for i in group]
                yield from _format_cells(cells, limit, group[0] and indent)


def _measure_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _shorten_names(rows: list[list[str]], limit: int) -> list[list[str]]:
    """Return rows with shorter names, which are words without spaces, if they fit the limit so.

    If they do not fit even then, and are broken anyway, a name has a third of a line. A word of a
    sentence has half of a line at most.
    """
    rows = [[shorten_words(cell, limit // 2) for cell in row] for row in rows]
    longest = min(max(_measure_columns(rows), default=0), limit)
    for width in [*range(longest, _SHORTEST, -1), max(_SHORTEST, limit // 3)]:
        shorter = [[cell if " " in cell else shorten(cell, width) for cell in row] for row in rows]
        widths = _measure_columns(shorter)
        if sum(widths) + 2 * (len(widths) - 1) <= limit:
            break
    return shorter


def _group_columns(widths: Sequence[int], limit: int, indent: int) -> list[list[int]]:
    """Return the columns of each line: as many as fit. The last column may be broken at words."""
    groups: list[list[int]] = []
    used = limit
    for column, width in enumerate(widths):
        needed = width if column < len(widths) - 1 else min(width, limit // 3)
        used += 2 + needed
        if used > limit:
            groups.append([])
            used = needed + (indent if column else 0)
        groups[-1].append(column)
    return groups


def _format_cells(cells: Sequence[tuple[str, int]], limit: int, indent: int) -> list[str]:
    """Return cells as a line; the last cell is broken at words if it is too wide."""
    texts = [cell.ljust(width) for cell, width in cells[:-1]]
    start = "  ".join([" " * indent + texts[0], *texts[1:], ""]) if texts else " " * indent
    line = f"{start}{cells[-1][0]}".rstrip()
    if not line:
        return []
    return [line] if len(line) <= limit else _wrap(line, limit, len(start) or _INDENT)


def _wrap(line: str, limit: int, indent: int) -> list[str]:
    """Break a line at spaces only, so that names and paths can be copied."""
    start = len(line) - len(line.lstrip())
    broken = wrap(
        line[start:],
        limit,
        initial_indent=line[:start],
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return broken or [line]


def _measure_width(stream: TextIO, default: int = sys.maxsize) -> int:
    """Return the number of columns of a terminal, or the default for other streams."""
    return get_terminal_size().columns if stream.isatty() else default


def print_json(value: object, stream: TextIO | None = None) -> None:
    """Print a value as JSON, on stdout unless another stream is given."""
    print_lines(stream or sys.stdout, [json.dumps(value, indent=2)])


def print_error(model: str, message: str) -> None:
    """Print an error on stderr, with the name of the model unless the message has it."""
    named = not model or message.startswith(f"{model} ") or f" {model}: " in message
    text = f"tflite2onnx: {'' if named else f'{model}: '}{message}"
    print_lines(sys.stderr, [text.replace(model, model.replace("\n", "\\n"))])


def describe_bug(error: Exception) -> str:
    """Return a message for an unexpected exception."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return f"this is a bug in tflite2onnx; please report it with the output of -v ({text})"


def describe_record(record: LogRecord) -> str:
    """Return the message of a log record; the message of a warning begins with "warning"."""
    kind = "warning: " if record.levelno == WARNING else ""
    return f"{kind}{record.getMessage()}"


def print_lines(
    stream: TextIO,
    lines: Iterable[str | TextTable],
    colour: Colour | None = None,
    *,
    wide: bool = False,
) -> None:
    """Print lines; control characters, and those that the stream cannot encode, are escaped.

    On a terminal, lines are broken at spaces, and have a colour if one is given. Tables fit the
    terminal, or 120 columns of a file or pipe, unless they are `wide`. Texts of several lines are
    printed as they are.
    """
    encoding, limit = stream.encoding or "utf-8", _measure_width(stream)
    table_width = sys.maxsize if wide else _measure_width(stream, _PIPE_WIDTH)
    code = colour.value if colour and _shows_colours(stream) else None
    for line in lines:
        for part in (
            line.align(table_width) if isinstance(line, TextTable) else _break_line(line, limit)
        ):
            text = part.encode(encoding, "backslashreplace").decode(encoding)
            print(text if code is None else f"\x1b[{code}m{text}\x1b[0m", file=stream)


def _break_line(line: str, limit: int) -> list[str]:
    text = escape_text(line)
    return [text] if "\n" in text or len(text) <= limit else _wrap(text, limit, _INDENT)


def _shows_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal with colours; NO_COLOR is of no-color.org."""
    has_colours = stream.isatty() and os.environ.get("TERM") != "dumb"
    return has_colours and not os.environ.get("NO_COLOR")


def escape_text(text: str) -> str:
    """Escape control characters, which names in a file may contain."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
