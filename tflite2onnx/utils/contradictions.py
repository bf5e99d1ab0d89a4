"""The options that contradict each other, as one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tflite2onnx.errors import OptionError
from tflite2onnx.utils.suggestions import join_alternatives


class Rule(NamedTuple):
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

_QOPERATOR = ("qoperator", "qoperator-mixed")

# Contradictions of options that both `convert` and the command line have.
CONVERSION = (
    Rule("float16_io", GIVEN, ("float16",), GIVEN),
    Rule("quantization", ("float",), ("activations",), ("auto",)),
    Rule("quantization", ("float",), ("weights",), ("auto",)),
    Rule("quantization", ("float",), ("io_type",), (None, "float")),
    Rule("quantization", ("symmetric",), ("activations",), ("auto", "int8")),
    Rule("quantization", ("symmetric",), ("weights",), ("auto", "int8")),
    Rule("quantization", ("symmetric",), ("io_type",), (None, "float", "int8")),
    Rule("quantization", _QOPERATOR, ("float16",), ABSENT),
    Rule("quantization", _QOPERATOR, ("weights",), ("auto", "int8", "uint8")),
    Rule("lengths", ("joined",), ("static", "batch"), ABSENT),
    Rule("preprocess", GIVEN, ("batch",), ABSENT, "a model with preprocessing takes one picture"),
    Rule("postprocess", GIVEN, ("batch",), ABSENT, "a model with postprocessing takes one picture"),
)
_JUDGED = ("verify", "report")
# Contradictions of options of the command line. `arrays` and `pictures` are the attributes of
# --input and --image.
COMMAND_LINE = (
    Rule("parts", GIVEN, ("preprocess", "postprocess"), GIVEN),
    Rule("target", ("genai",), ("verify",), ABSENT, "the decoder has other inputs than the file"),
    Rule("target", ("genai",), ("report",), ABSENT, "the decoder has other inputs than the file"),
    Rule("arrays", GIVEN, _JUDGED, GIVEN),
    Rule("pictures", GIVEN, _JUDGED, GIVEN),
    Rule("samples", GIVEN, _JUDGED, GIVEN),
    Rule("seed", GIVEN, _JUDGED, GIVEN),
    Rule("tolerance", GIVEN, _JUDGED, GIVEN),
)


def check_contradictions(
    rules: tuple[Rule, ...], options: object, spell: Callable[[str], str] = str
) -> None:
    """Check that the attributes of `options` follow the rules; `spell` writes their names.

    Raises:
        OptionError: two options contradict each other.
    """
    for rule in rules:
        values = _find_values(getattr(options, rule.option))
        others = [value for name in rule.others for value in _find_values(getattr(options, name))]
        if not any(_fits(value, rule.values) for value in values):
            continue
        if rule.allowed == GIVEN:
            fits = any(_fits(value, GIVEN) for value in others)
        else:
            fits = all(_fits(value, rule.allowed) for value in others)
        if not fits:
            raise OptionError(_describe(rule, others, spell))


def _find_values(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - of any option
    """Return the value, or the values of an option that has one for each tensor."""
    return tuple(value.values()) if isinstance(value, Mapping) and value else (value,)


def _fits(value: Any, values: tuple[str | None, ...]) -> bool:  # noqa: ANN401 - likewise
    is_given = value is not None and value is not False and value not in ([], {})
    if values in (GIVEN, ABSENT):
        return is_given == (values == GIVEN)
    return value in values


def _describe(rule: Rule, others: list[Any], spell: Callable[[str], str]) -> str:
    named = rule.values in (GIVEN, ABSENT)
    option = spell(rule.option) if named else f"{spell(rule.option)} {rule.values[0]}"
    names = join_alternatives([*map(spell, rule.others)])
    if rule.allowed in (GIVEN, ABSENT):
        word = "with" if rule.allowed == GIVEN else "without"
        return f"{option} must be given {word} {names}" + (rule.reason and f": {rule.reason}")
    allowed = join_alternatives([value for value in rule.allowed if value is not None])
    wrong = next(value for value in others if not _fits(value, rule.allowed))
    return f"{names} must be {allowed} with {option}, got {wrong}"
