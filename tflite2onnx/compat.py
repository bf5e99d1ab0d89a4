"""The interface of tflite2onnx 0.x, so that programs written for 0.x run unchanged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from tflite2onnx.op import supported_operators

P = ParamSpec("P")
R = TypeVar("R")

_RENAMED = {"tflite_path": "model", "onnx_path": "output", "explicit_layouts": "layouts"}


def accept_legacy_arguments(convert: Callable[P, R]) -> Callable[P, R]:
    """Accept the names that arguments had in 0.x as well."""

    @wraps(convert)
    def convert_renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        named: Any = {_RENAMED.get(name, name): value for name, value in kwargs.items()}
        return convert(*args, **named)

    return convert_renamed


def getSupportedOperators() -> list[str]:  # noqa: N802 - its name since 0.x
    """Return the names of all supported operators; the old name of `supported_operators`."""
    return supported_operators()


def enableDebugLog() -> None:  # noqa: N802 - its name since 0.x
    """Log the stages of each conversion, to stderr unless the program configures logging."""
    logging.basicConfig(format="%(asctime)s %(levelname).1s [%(name)s] %(message)s")
    logging.getLogger("tflite2onnx").setLevel(logging.DEBUG)
