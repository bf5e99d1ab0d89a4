"""Report of one conversion: `write_report` renders the results of `verify` as a page."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tflite2onnx.replaced_files import check_single_file
from tflite2onnx.report.facts import PageFacts, collect_facts
from tflite2onnx.report.page import write_page
from tflite2onnx.utils.atomic_files import replace_atomically, resolve_target
from tflite2onnx.verification import Report
from tflite2onnx.verification.onnx_model import ConvertedModel
from tflite2onnx.verification.runtimes import ModelFile

__all__ = ["PageFacts", "collect_facts", "write_page", "write_report", "write_report_on_success"]


def write_report(
    path: str | os.PathLike[str],
    model: ModelFile,
    converted: ConvertedModel,
    report: Report,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Write the report of a conversion: one self-contained HTML file that needs no network.

    Args:
        path: the page.
        model: the TFLite model.
        converted: the ONNX model.
        report: what `verify` returned.
        file: the ONNX file, if `converted` is the result of a conversion: the page has a link that
            opens the file in Netron, if the package `netron` is installed.

    Raises:
        VerifyError: a runtime cannot run its model.
        OutputError: the path cannot be written to.
    """
    with write_report_on_success(path, model, converted, report, file):
        pass


@contextmanager
def write_report_on_success(
    path: str | os.PathLike[str],
    model: ModelFile,
    converted: ConvertedModel,
    report: Report,
    file: str | os.PathLike[str] | None = None,
) -> Iterator[None]:
    """Write the report around other work; if the work fails, no report remains."""
    html = write_page(collect_facts(model, converted, report, file))
    with resolve_target(path) as target:
        check_single_file(target)
        with replace_atomically(target) as page:
            page.write(html.encode())
            yield
