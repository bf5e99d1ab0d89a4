"""The user's settings for pictures: "mean=127.5,std=127.5,channels=bgr", or a mapping."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tflite2onnx.errors import OptionError
from tflite2onnx.utils.suggestions import join_alternatives, suggest_names

Settings = str | bool | Mapping[str, Any]
AUTO = "auto"
# The names of the parts of a model.
PREPROCESSING, NETWORK, POSTPROCESSING = "preprocessing", "network", "postprocessing"

_MOST = (1 << 31) - 1
_CHANNELS = 4


def _read_numbers(value: object) -> tuple[float, ...]:
    items = value.split(",") if isinstance(value, str) else value
    listed = items if isinstance(items, Sequence) and not isinstance(items, str) else [items]
    numbers = tuple(float(str(item)) for item in listed)
    if not 1 <= len(numbers) <= _CHANNELS or not all(map(math.isfinite, numbers)):
        raise ValueError
    return numbers


def _read_divisors(value: object) -> tuple[float, ...]:
    numbers = _read_numbers(value)
    if not all(numbers):
        raise ValueError
    return numbers


def _read_size(value: object) -> tuple[int, int]:
    words = value.split("x") if isinstance(value, str) else value
    height, width = words if isinstance(words, Sequence) else ()
    read_side, _ = _expect_number(int, 1, _MOST, "")
    return read_side(height), read_side(width)


def _expect_number(
    kind: Callable[[str], Any], low: float, high: float, form: str
) -> tuple[Callable[[object], Any], str]:
    """Return the function that reads a number from `low` to `high`, and a description of it."""

    def read_number(value: object) -> Any:  # noqa: ANN401 - of the kind
        number = kind(str(value))
        if not low <= number <= high:
            raise ValueError
        return number

    return read_number, form


def _read_labels(value: object) -> str | tuple[str, ...]:
    """Read the path of a file with a label on each line, "none", or the labels themselves."""
    if isinstance(value, str) and value:
        return value
    if not isinstance(value, Sequence) or not all(isinstance(label, str) for label in value):
        raise TypeError
    return tuple(value)


def _expect_one_of(*words: str) -> tuple[Callable[[Any], Any], str]:
    def read_word(value: object) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return read_word, join_alternatives(words)


# For each key: the function that reads its value, and a description of valid values.
_Readers = Mapping[str, tuple[Callable[[Any], Any], str]]
PREPROCESS_KEYS: _Readers = {
    "mean": (_read_numbers, "a number, or one for each channel, as in mean=123.7,116.3,103.5"),
    "std": (_read_divisors, "a number other than 0, or one for each channel"),
    "channels": _expect_one_of("rgb", "bgr", "gray"),
    "resize": _expect_one_of("stretch", "letterbox", "center"),
    "pad": _expect_number(int, 0, 255, "an integer from 0 to 255"),
    "layout": _expect_one_of("HWC", "CHW", "NHWC", "NCHW"),
    "size": (_read_size, "a height and a width, as in size=480x640"),
    "type": _expect_one_of("uint8", "float32"),
}
POSTPROCESS_KEYS: _Readers = {
    "decoder": _expect_one_of("mediapipe", "yolov5", "yolov8", "ssd", "detections", "scores"),
    "scores": _expect_one_of("sigmoid", "softmax", "none"),
    "coordinates": _expect_one_of("fractions", "pixels"),
    "threshold": _expect_number(float, 0, 1, "a number from 0 to 1"),
    "iou": _expect_number(float, 0, 1, "a number from 0 to 1"),
    "max": _expect_number(int, 1, _MOST, "a positive integer"),
    "units": _expect_one_of("pixels", "fractions"),
    "labels": (_read_labels, "a file with a label on each line, or none"),
}


def read_settings(option: str, value: Settings, readers: _Readers) -> dict[str, Any] | None:
    """Return settings by their keys, None if the option is off; OptionError if one is invalid."""
    if value is False:
        return None
    if isinstance(value, str):
        value = True if value == AUTO else _split_text(option, value)
    if value is True:
        return {}
    if not isinstance(value, Mapping):
        raise OptionError(
            f"`{option}` must be True or such as {_write_example(readers)}, got {value!r}"
        )
    settings = {}
    for key, setting in value.items():
        if key not in readers:
            hint = suggest_names(key, readers) or f"; known keys are {', '.join(readers)}"
            raise OptionError(f"`{option}` has no key {key}{hint}")
        reader, form = readers[key]
        try:
            settings[key] = reader(setting)
        except (ValueError, TypeError) as error:
            raise OptionError(f"`{option}`: {key} must be {form}, got {setting!r}") from error
    return settings


def _split_text(option: str, text: str) -> dict[str, str]:
    """Split "mean=1,2,3,std=4" into {"mean": "1,2,3", "std": "4"}."""
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        if equals:
            pairs[key] = value
        elif pairs:
            last = next(reversed(pairs))
            pairs[last] += f",{part}"
        else:
            raise OptionError(
                f"`{option}` must be KEY=VALUE,..., as in mean=127.5,std=127.5, got {text};"
                f" `{option}`={AUTO} may stand before a file"
            )
    return pairs


def _write_example(readers: _Readers) -> str:
    key = next(iter(readers))
    return f'{{"{key}": ...}}'
