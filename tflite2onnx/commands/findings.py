"""What a verification found, in lines, and the exit status that it means: of each command alike."""

from __future__ import annotations

from collections import Counter

from tflite2onnx.text import columns, complain, count
from tflite2onnx.verification import Compared, Difference, Report
from tflite2onnx.verification.findings import DIFFERS, RIGHT, WRONG

OK, DIFFERENT = 0, 2
_MOST = 10  # tensors that are listed
_KNOWN = {True: "yes", False: "no", None: "unknown"}
_KERNELS = (
    "with its optimizations disabled ONNX Runtime computes the right numbers: the cause is its"
    " kernels on this processor, not the conversion. Convert with --weights auto or --weights uint8,"
    " which are right on every processor (int8 is for processors with VNNI or ARM's dot product),"
    " or run the model with SessionOptions.graph_optimization_level = ORT_DISABLE_ALL"
)


def judged(model: str, report: Report) -> int:
    """Print on stderr what is wrong, where it begins and why; return the exit status."""
    for difference in report.outputs:
        if not difference.ok:
            complain(model, f"output {difference.name}: {difference.complaint}")
    first = report.diverging
    if first is not None:
        place = f"{first.operator} (operator {first.index}, {first.name})"
        complain(model, f"the first tensor that diverges is of {place}{_alone(report, first)}")
    if report.right_unoptimized:
        complain(model, _KERNELS)
    return OK if report.ok else DIFFERENT


def _alone(report: Report, first: Compared) -> str:
    return f": on LiteRT's own inputs {first.difference.complaint}" if report.operators else ""


def outputs(report: Report) -> list[str]:
    """Return what was found of the outputs, and the instruction sets of the processor."""
    rows = [(d.name, *_measured(d), verdict) for d, verdict in report.judged_outputs]
    has = ", ".join(f"{name} {_KNOWN[known]}" for name, known in report.processor.items())
    return [
        f"LiteRT and ONNX Runtime on {count(report.samples, 'sample')}:", *columns(rows),
        f"instruction sets of this processor: {has or 'unknown'}",
    ]  # fmt: skip


def inside(report: Report) -> list[str]:
    """Return what was found of the tensors between the operators, each with its verdict."""
    lines = []
    found = report.tensors or report.operators
    if found:
        verdicts = report.verdicts
        counts = Counter(verdicts[each.name] for each in found)
        lines.append(
            f"{count(len(found), 'tensor')}, in order of execution: {counts[RIGHT]:,} right,"
            f" {counts[DIFFERS]:,} {DIFFERS}, {counts[WRONG]:,} {WRONG}"
        )
        if report.operators:
            lines.append(
                f"{count(len(report.operators), 'operator')} run on LiteRT's own inputs:"
                f" {counts[WRONG]:,} {WRONG}"
            )
        far = [each for each in found if verdicts[each.name] != RIGHT]
        far.sort(key=lambda each: verdicts[each.name] != WRONG)
        alone = {each.name: each.difference for each in report.operators}
        lines += columns(
            [
                (*_place(c), *_measured(c.difference), _own(alone.get(c.name)), verdicts[c.name])
                for c in far[:_MOST]
            ]
        )
        if len(far) > _MOST:
            lines.append(f"... and {len(far) - _MOST:,} more")
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


def _own(alone: Difference | None) -> str:
    """Return how far off an operator is on LiteRT's own inputs, empty if it was not run so."""
    if alone is None or alone.reason:
        return ""
    return f"{alone.largest:.3g} on LiteRT's own inputs ({alone.allowed:.3g} is allowed)"
