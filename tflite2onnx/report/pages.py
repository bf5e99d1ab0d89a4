"""Pages of the models of a bundle: `--report FOLDER` writes a page for each ONNX file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tflite2onnx.bundle import BundlePart
from tflite2onnx.errors import OptionError, OutputError
from tflite2onnx.report import write_report
from tflite2onnx.verification import Report
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile

_SUFFIXES = (".html", ".htm")


def check_pages(report: str | None, parts: Sequence[BundlePart] = ()) -> None:
    """Raise OptionError if --report is not the name of a folder, or two pages have one name."""
    if report is None:
        return
    if report.lower().endswith(_SUFFIXES) or Path(report).is_file():
        raise OptionError(
            "--report must be a folder for several models or a bundle, each of which has a page,"
            f" got {report}"
        )
    pages = [place_page(report, part) for part in parts]
    for page in pages:
        if pages.count(page) > 1:
            raise OptionError(f"--report must have one page for each model, got two for {page}")


def place_page(report: str, part: BundlePart) -> Path:
    """Return the page of a part: in the same folder below `report` as its ONNX file below OUT."""
    return Path(report, part.file).with_suffix(".html")


def write_page(
    report: str | None,
    part: BundlePart,
    model: ModelFile,
    converted: ConvertedModel,
    findings: Report,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Write the page of a part, and the folders that it is in; `file` is the ONNX file of a result.

    Raises:
        OutputError: the page cannot be written.
    """
    if report is None:
        return
    page = place_page(report, part)
    make_folder(page)
    write_report(page, model, converted, findings, file)


def make_folder(page: str | os.PathLike[str]) -> None:
    """Make the folder of a page.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        Path(page).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {page}: {error.strerror}") from error
