"""tflite2onnx/options.py."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

from tflite2onnx import convert
from tflite2onnx.options import ConversionOptions


def test_convert_takes_every_option_with_its_default() -> None:
    """The signature of `convert` repeats the options and their defaults for type checkers."""
    parameters = inspect.signature(convert).parameters
    assert {*parameters} - {"model", "output"} == {
        option.name for option in fields(ConversionOptions)
    }
    for option in fields(ConversionOptions):
        if option.default is not MISSING:
            parameter = parameters[option.name]
            assert (parameter.default, parameter.annotation) == (option.default, option.type)


def test_every_option_has_a_help_text() -> None:
    """The command line shows it."""
    assert all(option.metadata["help"] for option in fields(ConversionOptions))
