"""Where the outputs of models on standard input are written."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.small import network
from tflite2onnx.cli.places import STANDARD, place_one
from tflite2onnx.errors import ConversionError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


def make_bundle() -> bytes:
    """Return the bytes of a bundle with one model."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("model.tflite", network())
    return made.getvalue()


@pytest.mark.parametrize(
    ("output", "folder", "parts"),
    [
        (None, False, [STANDARD]),
        ("out.onnx", False, ["out.onnx"]),
        ("out/", False, ["out", "model.onnx"]),
        ("out", True, ["out", "model.onnx"]),
    ],
)
def test_output_has_the_given_path(output: str | None, folder: bool, parts: Sequence[str]) -> None:  # noqa: FBT001 - a row of the table
    job = place_one(STANDARD, output, folder=folder, data=network())
    assert Path(job.output) == Path(*parts)


def test_bundle_needs_an_output_folder() -> None:
    with pytest.raises(OptionError, match="must be given, as -o FOLDER"):
        place_one(STANDARD, None, folder=False, data=make_bundle())
    with pytest.raises(ConversionError, match=r"out\.onnx"):
        place_one(STANDARD, "out.onnx", folder=True, data=make_bundle())
    assert place_one(STANDARD, "out", folder=True, data=make_bundle()).output == "out"
