"""Pages of the models of a bundle: `--report FOLDER` writes a page for each ONNX file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tflite2onnx.bundle import BundlePart
from tflite2onnx.errors import OptionError, OutputError
from tflite2onnx.replaced_files import check_single_file
from tflite2onnx.report import write_report
from tflite2onnx.report.html import LinkedText, StyledText, as_data, as_paragraph, as_table, as_text
from tflite2onnx.report.page import STYLES, write_document
from tflite2onnx.utils.atomic_files import replace_atomically, resolve_target
from tflite2onnx.utils.console import count
from tflite2onnx.verification import Report, Verdict
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile
from tflite2onnx.version import VERSION

_SUFFIXES = (".html", ".htm")


def check_pages(report: str, pages: Sequence[Path]) -> None:
    """Raise OptionError if --report is not the name of a folder, or two pages have one name."""
    if report.lower().endswith(_SUFFIXES) or Path(report).is_file():
        raise OptionError(
            "--report must be a folder for several models or a bundle, each of which has a page,"
            f" got {report}"
        )
    for page in pages:
        if pages.count(page) > 1:
            other = "the list of the pages" if page == place_index(report) else "another model"
            raise OptionError(
                f"each model must have a page of its own, got {page} for a model and for {other};"
                " rename the model"
            )


def place_page(report: str, part: BundlePart) -> Path:
    """Return the page of a part: in the same folder below `report` as its ONNX file below OUT."""
    return Path(report, part.file).with_suffix(".html")


def place_index(report: str) -> Path:
    """Return the page that lists the pages of all models."""
    return Path(report, "index.html")


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
    """Make the folder of a page; OutputError if it cannot be made."""
    try:
        Path(page).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {page}: {error.strerror}") from error


def write_index(folder: str, models: Sequence[Mapping[str, Any]]) -> Path:
    """Write the index of pages into their folder, and return its path; faults are first.

    Args:
        folder: the folder of all pages.
        models: the facts of each model, as `--json` prints them, with the path of its page; only
            the path if an earlier run wrote the page.

    Raises:
        OutputError: the index cannot be written.
    """
    worst_first = [None, *STYLES]
    ordered = sorted(
        models, key=lambda facts: (_is_earlier(facts), worst_first.index(_read_verdict(facts)))
    )
    verdicts = [verdict for facts in models if (verdict := _read_verdict(facts))]
    right = sum(verdict.accepts for verdict in verdicts)
    earlier = sum(map(_is_earlier, models))
    words = f"{right:,} of {count(len(models) - earlier, 'model')} are within their limits."
    words += f" {count(earlier, 'page')} of an earlier run." if earlier else ""
    words += " A click on a heading sorts; the name of a model opens its page."
    head = ("Model~", "Verdict", "Nodes#", "Transposes#", "Bytes#", "Reason~")
    rows = [_make_row(folder, facts) for facts in ordered]
    table = as_table(head, rows, [facts["name"] for facts in ordered])
    body = "\n".join(
        (
            f"<header>\n<h1>Models in ONNX</h1>\n{as_paragraph(words)}\n</header>",
            table,
            as_data("details", {}),
            f"<footer>tflite2onnx {as_text(VERSION)}</footer>",
        )
    )
    path = place_index(folder)
    html = write_document("Models in ONNX", body)
    with resolve_target(path) as target:
        check_single_file(target)
        with replace_atomically(target) as file:
            file.write(html.encode())
    return path


# Facts of an ONNX file, which the command verify does not collect.
_SIZES = ("nodes", "transposes", "bytes")


def _is_earlier(facts: Mapping[str, Any]) -> bool:
    return not facts.keys() & {"error", "verification"}


def _read_verdict(facts: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict on a model; None if it was not converted."""
    return Verdict(facts["verification"]["verdict"]) if "verification" in facts else None


def _make_row(folder: str, facts: Mapping[str, Any]) -> tuple[object, ...]:
    verdict = _read_verdict(facts)
    if "error" in facts:
        return facts["name"], StyledText("FAILED", "wrong"), "", "", "", facts["error"]
    page = Path(os.path.relpath(facts["page"], folder)).as_posix()
    if verdict is None:
        return LinkedText(facts["name"], page), "earlier run", "", "", "", ""
    sizes = (f"{facts[key]:,}" if key in facts else "" for key in _SIZES)
    word = StyledText(verdict.conclusion, STYLES[verdict])
    return LinkedText(facts["name"], page), word, *sizes, ""
