"""HTML elements of a page: tables, legends and bars. Only this module escapes text."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from itertools import repeat
from typing import Any, NamedTuple
from urllib.parse import quote

from tflite2onnx.utils.console import escape_text, shorten
from tflite2onnx.verification import Report, Verdict

# The styles of tensors that are not faults, and are not shown to be right.
_STYLES = {Verdict.NOTHING_SHOWN: "unshown", Verdict.DIFFERS: "after"}
_LONGEST = 200  # characters of a value


class StyledText(NamedTuple):
    """A text and the class of its style."""

    text: str
    kind: str


class LinkedText(NamedTuple):
    """A text that opens another page."""

    text: str
    page: str


def as_text(words: object) -> str:
    """Return text as escaped HTML: names come from the file and may contain any characters."""
    return escape(escape_text(str(words)))


def shorten_value(value: object) -> str:
    """Return the text of an attribute's value, the beginning of a long one."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\N{HORIZONTAL ELLIPSIS}"


def as_section(title: str, *parts: str) -> str:
    """Return a section, or an empty string if it has no parts."""
    inner = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{as_text(title)}</h2>\n{inner}\n</section>" if inner else ""


def as_folded(size: str, words: str, *parts: str) -> str:
    """Return parts that are hidden until their title is clicked: their size, and why they are."""
    inner, told = "\n".join(parts), as_text(words)
    title = f'<summary data-words="{told}">{as_text(size)}: {told}</summary>'
    return f"<details>\n{title}\n{inner}\n</details>"


def as_paragraph(words: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{as_text(words)}</p>' if kind else f"<p>{as_text(words)}</p>"


def as_table(
    head: Sequence[str], rows: Iterable[Sequence[object]], keys: Sequence[str] | None = None
) -> str:
    """Return a table that scrolls if it is too wide; numbers are aligned to the right.

    The last character of a heading gives the kind of its column: "*" for names, of which only the
    end is shown if they are long, "#" for numbers, "~" for text that may wrap. The script searches
    and sorts rows that have keys, and shows the details of a key.
    """
    kinds = [{"*": "name", "#": "number", "~": "broken"}.get(name[-1:], "") for name in head]
    names = [name.rstrip("*#~") for name in head]

    def as_row(tag: str, cells: Sequence[object], attributes: str = "") -> str:
        written = (
            f"<{tag}{_as_class(kind, cell)}>"
            f"{_as_cell(shorten(cell) if kind == 'name' else cell)}</{tag}>"
            for kind, cell in zip(kinds, cells, strict=True)
        )
        return f"<tr{attributes}>{''.join(written)}</tr>"

    marks = repeat("") if keys is None else (f' data-key="{as_text(key)}"' for key in keys)
    body = "\n".join(as_row("td", cells, mark) for cells, mark in zip(rows, marks, strict=False))
    return (
        f'<div class="scroll" tabindex="0"><table>\n<thead>{as_row("th", names)}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _as_class(kind: str, cell: object) -> str:
    whole = f' title="{as_text(cell)}"' if kind == "name" else ""
    return f' class="{kind}"{whole}' if kind else ""


def _as_cell(cell: object) -> str:
    if isinstance(cell, LinkedText):
        return f'<a href="{as_text(quote(cell.page))}">{as_text(cell.text)}</a>'
    if isinstance(cell, StyledText):
        return f'<span class="{cell.kind}">{as_text(cell.text)}</span>'
    return as_text(cell)


def style_verdict(report: Report, name: str) -> StyledText:
    """Return the verdict on a tensor with its style, the same in the whole page."""
    verdict = report.verdicts[name]
    if name in report.faults:
        return StyledText(verdict.value, "wrong")
    return StyledText(verdict.value, _STYLES.get(verdict, "right"))


def format_sizes(shape: Iterable[int | str]) -> str:
    """Return the sizes of a tensor as text."""
    return "\N{MULTIPLICATION SIGN}".join(map(str, shape)) or "scalar"


def write_keys(entries: Iterable[tuple[str, str]]) -> str:
    """Return a legend of colours; an entry is (class, meaning)."""
    items = "".join(f'<li class="{kind}"><i></i>{as_text(words)}</li>' for kind, words in entries)
    return f'<ul class="keys">{items}</ul>'


def as_bars(rows: Iterable[tuple[str, float, str]]) -> str:
    """Return a bar chart; a row is (label, fraction of the full width, text of the bar)."""
    cells = "".join(
        f'<span>{as_text(name)}</span><span><span class="bar" style="display:block;'
        f'width:{100 * part:.2f}%"></span></span><span class="number">{as_text(words)}</span>'
        for name, part, words in rows
    )
    return f'<div class="bars">{cells}</div>'


def as_data(name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return data for the script, escaped so that it cannot end its script element."""
    content = json.dumps(value, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{content}</script>'
