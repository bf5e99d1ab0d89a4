"""Options that contradict each other: a table is a tuple of contradictions."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tflite2onnx.errors import OptionError
from tflite2onnx.utils.suggestions import join_alternatives


class Contradiction(NamedTuple):
    """If `option` has one of `values`, one of `others` has a value that is `allowed`.

    `values` and `allowed` are tuples of values, or `GIVEN` or `ABSENT`.
    """

    option: str
    values: tuple[str, ...]
    others: tuple[str, ...]
    allowed: tuple[str | None, ...]
    reason: str = ""


GIVEN = ("(given)",)
ABSENT = ("(absent)",)


def check_contradictions(table: Iterable[Contradiction], options: object) -> None:
    """Check the attributes of `options`; OptionError if two options contradict each other."""
    for row in table:
        values = _find_values(getattr(options, row.option))
        others = [value for name in row.others for value in _find_values(getattr(options, name))]
        given = [value for value in values if _fits(value, row.values)]
        if not given:
            continue
        if row.allowed == GIVEN:
            fits = any(_fits(value, GIVEN) for value in others)
        else:
            fits = all(_fits(value, row.allowed) for value in others)
        if not fits:
            raise OptionError(_describe(row, given[0], others))


def _find_values(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any option
    """Return the value, or the values of an option that has one for each tensor."""
    return tuple(value.values()) if isinstance(value, Mapping) and value else (value,)


def _fits(value: Any, values: tuple[str | None, ...]) -> bool:  # noqa: ANN401 - likewise
    is_given = value is not None and value is not False and value not in ([], {})
    if values in (GIVEN, ABSENT):
        return is_given == (values == GIVEN)
    return value in values


def _describe(row: Contradiction, value: object, others: list[Any]) -> str:
    named = row.values in (GIVEN, ABSENT)
    option = f"`{row.option}`" if named else f"`{row.option}` {value}"
    names = join_alternatives([f"`{name}`" for name in row.others])
    if row.allowed in (GIVEN, ABSENT):
        word = "with" if row.allowed == GIVEN else "without"
        return f"{option} must be given {word} {names}" + (row.reason and f": {row.reason}")
    allowed = join_alternatives([value for value in row.allowed if value is not None])
    wrong = next(value for value in others if not _fits(value, row.allowed))
    return f"{names} must be {allowed} with {option}, got {wrong}"
