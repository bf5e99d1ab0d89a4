"""What a verification found, in lines, and the exit status that it means: of each command alike."""

from __future__ import annotations

from collections import Counter

from tflite2onnx.text import columns, complain, count
from tflite2onnx.verification import Compared, Difference, Report

OK, DIFFERENT = 0, 2
_MOST = 10  # wrong tensors that are listed


def judged(model: str, report: Report) -> int:
    """Print on stderr what is wrong, and where it begins; return the exit status."""
    for difference in report.outputs:
        if not difference.ok:
            complain(model, f"output {difference.name} is wrong: {difference.complaint}")
    first = report.diverging
    if first is not None:
        place = f"{first.operator} (operator {first.index}, {first.name})"
        complain(model, f"the first tensor that diverges is of {place}")
    return OK if report.ok else DIFFERENT


def outputs(report: Report) -> list[str]:
    """Return what was found of the outputs."""
    rows = [(d.name, *_measured(d), "right" if d.ok else "WRONG") for d in report.outputs]
    return [f"LiteRT and ONNX Runtime on {count(report.samples, 'sample')}:", *columns(rows)]


def inside(report: Report) -> list[str]:
    """Return what was found of the tensors between the operators."""
    lines = []
    for what, found in (
        ("tensors, in order of execution", report.tensors),
        ("operators, each on LiteRT's own inputs", report.operators),
    ):
        if not found:
            continue
        wrong = [each for each in found if not each.difference.ok]
        lines.append(f"{len(found):,} {what}: {len(wrong):,} too far off")
        lines += columns([(*_place(c), *_measured(c.difference)) for c in wrong[:_MOST]])
        if len(wrong) > _MOST:
            lines.append(f"... and {len(wrong) - _MOST:,} more")
    if not report.tensors:
        lines.append("the tensors inside the ONNX model are not known: outputs alone are compared")
    if report.closed:
        codes = ", ".join(f"{number} {code}" for code, number in Counter(report.closed).items())
        lines.append(f"what sub-graphs compute is compared where it leaves them: {codes}")
    return lines


def _place(compared: Compared) -> tuple[str, str]:
    return f"{compared.operator} ({compared.index})", compared.name


def _measured(difference: Difference) -> tuple[str, str]:
    """Return the largest difference, and how much louder the signal is than the noise."""
    if difference.reason:
        return difference.reason, ""
    largest = f"largest difference {difference.largest:.3g}, {difference.relative:.2g} of the range"
    return largest, f"{difference.decibels:.0f} dB"
