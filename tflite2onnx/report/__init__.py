"""A page about one conversion: `write_report` makes it, of what `verify` has found."""

from __future__ import annotations

import os
from pathlib import Path

from tflite2onnx.errors import OutputError
from tflite2onnx.report.facts import Facts, facts
from tflite2onnx.report.page import page
from tflite2onnx.verification import Report
from tflite2onnx.verification.converted import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile

__all__ = ["Facts", "facts", "page", "write_report"]


def write_report(
    path: str | os.PathLike[str], model: ModelFile, converted: ConvertedModel, report: Report
) -> None:
    """Write a page about a conversion: one file of HTML that needs no other, and no network.

    Raises:
        VerifyError: a runtime cannot run its model.
        OutputError: the place cannot be written to.
    """
    html = page(facts(model, converted, report))
    try:
        Path(path).write_text(html, "utf-8")
    except (OSError, ValueError) as error:
        message = f"cannot write {os.fspath(path)}: {getattr(error, 'strerror', None) or error}"
        raise OutputError(message) from error
