"""Options of the command line that name tensors: layouts, shapes, files and new names.

A layout is NAME=NCHW, NAME=NHWC:NCHW, or a JSON file. A shape is NAME=1,16000, or with names for
dynamic sizes NAME=batch,height,width,3. Other options are pairs such as NAME=FILE.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tflite2onnx.errors import LayoutError, OptionError

_GIVEN = re.compile(r"(?P<name>.+)=(?P<first>\w+)(?::(?P<second>\w+))?", re.ASCII | re.DOTALL)


def read_layouts(words: Iterable[str]) -> dict[str, Any]:
    """Return the layouts by tensor; `convert` checks them against the model.

    Raises:
        LayoutError: a file cannot be read or holds no mapping, a tensor is named twice, or
            the layout in TFLite is not given and does not follow from the layout in ONNX.
    """
    return _build_unique_mapping(pair for word in words for pair in _read_word(word))


def _read_word(word: str) -> Iterator[tuple[str, Any]]:
    match = _GIVEN.fullmatch(word)
    if match is None:
        yield from _read_file(word).items()
    elif match["second"] is None:
        yield match["name"], (_move_channels_last(match["name"], match["first"]), match["first"])
    else:
        yield match["name"], (match["first"], match["second"])


def _move_channels_last(name: str, letters: str) -> str:
    """Return the TFLite layout of a tensor if only its ONNX layout is given."""
    if letters.islower():
        raise LayoutError(
            f"layout of {name}: must be capital letters, one for each axis, such as NHWC, got"
            f" {letters}"
        )
    if letters.count("C") != 1:
        raise LayoutError(
            f"layout of {name}: {letters} must have one C, which is last in TFLite, or be given"
            f" with the layout in TFLite before it, as {name}=NHWC:NCHW"
        )
    return letters.replace("C", "") + "C"


def _read_file(path: str) -> dict[str, Any]:
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        mapping = json.loads(text, object_pairs_hook=_build_unique_mapping)
    except OSError as error:
        if path.lower().endswith(".json"):
            raise LayoutError(f"cannot read {path}: {error.strerror}") from error
        form = "NAME=NCHW, NAME=NHWC:NCHW or a JSON file"
        raise LayoutError(f"--layout must be {form}, got {path}") from error
    except (ValueError, RecursionError) as error:
        raise LayoutError(f"{path} must be valid JSON ({error})") from error
    if not isinstance(mapping, dict):
        message = f'{path} must have a mapping such as {{"input": ["NHWC", "NCHW"]}}'
        raise LayoutError(message)
    return mapping


def _build_unique_mapping(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    pairs = list(pairs)
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names: Sequence[str] = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise LayoutError(f"the layout of {twice} must be given once, got two layouts")
    return mapping


def read_shapes(words: Iterable[str]) -> dict[str, list[int | str]]:
    """Return the shapes by input; OptionError if a word is no shape, or an input is named twice."""
    form = "NAME=SIZE,SIZE,..."
    pairs = read_pairs("--shape", form, words)
    for name, sizes in pairs.items():
        if re.search(r"[^\w\s,-]", sizes):  # as in x=[1,224,224,3]
            raise OptionError(f"--shape must be {form}, as in {name}=1,16000, got {name}={sizes}")
    return {
        name: [read_size(size.strip()) for size in sizes.split(",")]
        for name, sizes in pairs.items()
    }


def read_types(words: Sequence[str]) -> str | dict[str, str] | None:
    """Return the type of all inputs and outputs, or their types by name; None without words.

    Raises:
        OptionError: a type without a name is not the only word, or a name is given twice.
    """
    if len(words) == 1 and "=" not in words[0]:
        return words[0]
    return read_pairs("--io-type", "one TYPE for all, or NAME=TYPE", words) or None


def read_pairs(option: str, form: str, words: Iterable[str]) -> dict[str, str]:
    """Return pairs such as NAME=FILE as a mapping; a name may contain "=", a value must not.

    Raises:
        OptionError: a word is not a pair, or a name is given twice.
    """
    pairs: dict[str, str] = {}
    for word in words:
        name, _, value = word.rpartition("=")
        if not (name and value) or name in pairs:
            raise OptionError(f"{option} must be {form}, once for each name, got {word}")
        pairs[name] = value
    return pairs


def read_size(text: str) -> int | str:
    """Return a size: a number, or the name of a dynamic size."""
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else text
