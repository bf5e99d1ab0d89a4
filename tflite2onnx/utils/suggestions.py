"""Suggestions in error messages for names that are not found."""

from collections.abc import Iterable, Sequence


def join_alternatives(words: Sequence[str]) -> str:
    """Return one or more words as alternatives, each once: "a", "a or b", "a, b or c"."""
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def suggest_names(
    name: object, known: Iterable[str], most: int = 1, few: int = 0, likeness: float = 0.6
) -> str:
    """Return the end of a message with the names closest to `name`, "" if none is close.

    `likeness` is from 0 to 1, for equal names. Capitals and the dashes before an option do not
    count. If none is close, and at most `few` are known, all of them are named.
    """
    import difflib  # noqa: PLC0415 - only for errors

    names = [*known]
    spelled = {word.lstrip("-").casefold(): word for word in reversed(names)}
    close = difflib.get_close_matches(
        str(name).lstrip("-").casefold(), [*spelled][::-1], most, likeness
    )
    if close:
        return f"; did you mean {join_alternatives([spelled[word] for word in close])}?"
    return f"; choose {join_alternatives(names)}" if 0 < len(names) <= few else ""
