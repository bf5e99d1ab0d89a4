"""Suggestions in error messages for names that are not found."""

from collections.abc import Iterable, Sequence


def join_alternatives(words: Sequence[str]) -> str:
    """Return one or more words as alternatives, each once: "a", "a or b", "a, b or c"."""
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def suggest_names(name: object, known: Iterable[str], most: int = 1) -> str:
    """Return the end of a message with the names closest to `name`, "" if none is close."""
    import difflib  # noqa: PLC0415 - only for errors

    close = difflib.get_close_matches(str(name), known, n=most)
    return f"; did you mean {join_alternatives(close)}?" if close else ""
