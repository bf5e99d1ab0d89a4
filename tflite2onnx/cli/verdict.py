"""The findings of a verification as lines, and its exit status, the same for all commands."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import TextIO

from tflite2onnx.utils.console import Colour, TextTable, count, print_error, print_lines
from tflite2onnx.utils.processor import describe_sets
from tflite2onnx.verification import Difference, Report, Verdict
from tflite2onnx.verification.chats import Chat
from tflite2onnx.verification.decoding import Decoding
from tflite2onnx.verification.inner_tensors import TensorComparison
from tflite2onnx.verification.results import describe_kernels, describe_misread
from tflite2onnx.verification.runtimes import PLAIN_KERNELS

OK, DIFFERENT = 0, 2
_MOST = 10  # the largest number of tensors that are listed
# The last line of a verification: its colour, and what its word means.
_CONCLUSIONS = {
    Verdict.RIGHT: (Colour.GREEN, "every output is right"),
    Verdict.CLOSE: (Colour.YELLOW, "an output is right by a wider limit only, see above"),
    Verdict.NOTHING_SHOWN: (Colour.YELLOW, "every output is one number everywhere"),
    Verdict.WRONG: (Colour.RED, "an output or an operator exceeds its limits"),
}


def print_verdict(model: str, report: Report) -> int:
    """Print wrong outputs, the first wrong tensor and the cause; return the exit status."""
    for difference in report.outputs:
        if not difference.ok:
            print_error(model, f"output {difference.name}: {difference.complaint}")
    for sizes in report.other_sizes or ():
        for difference in (item for item in sizes.outputs if not item.ok):
            print_error(model, f"output {difference.name} with {sizes}: {difference.complaint}")
    for difference in report.nothing_shown:
        print_error(model, f"warning: {_describe_nothing(difference)}")
    first = report.diverging
    if first is not None:
        place = f"{first.operator} (operator {first.index}, {first.name})"
        note = f": on LiteRT's own inputs {first.difference.complaint}" if report.operators else ""
        print_error(model, f"the first tensor that differs is the output of {place}{note}")
        if first.joined:
            print_error(model, _describe_joined(first))
        if report.storage.get(first.name):
            print_error(model, f"storage of its operands: {report.storage[first.name]}")
    if report.cause:
        print_error(model, report.cause)
    return OK if report.ok else DIFFERENT


def print_conclusion(stream: TextIO, model: str, report: Report) -> None:
    """Print the verdict on a model as one line, in colour on a terminal."""
    colour, meaning = _CONCLUSIONS[report.verdict]
    print_lines(stream, [f"{report.verdict.conclusion}: {model}: {meaning}"], colour)


def _describe_joined(tensor: TensorComparison) -> str:
    """Return which other operators may be the cause of a difference."""
    others = ", ".join(tensor.joined[:_MOST])
    rest = f" and {len(tensor.joined) - _MOST:,} more" if len(tensor.joined) > _MOST else ""
    return (
        f"the cause may also be {others}{rest}, whose outputs the ONNX model lacks: a model of"
        " --forms canonical may have them"
    )


def _describe_nothing(output: Difference) -> str:
    level = output.level or 0
    numbers = "no element is finite" if math.isnan(level) else f"every element is {level:.6g}"
    return (
        f"output {output.name}: {numbers}, which shows nothing; verify on real"
        " data, with --input NAME=FILE or --image FILE"
    )


def describe_decodings(
    model: str, decodings: Mapping[str, Decoding | Chat]
) -> tuple[list[str], int]:
    """Return the tokens of each language model as lines, and the status; print wrong tokens."""
    for name, result in decodings.items():
        if not result.ok:
            more = "" if len(result.wrong) <= _MOST else ", ..."
            steps = ", ".join(map(str, result.wrong[:_MOST])) + more
            print_error(name or model, f"LiteRT chooses other tokens in the steps {steps}")
    lines = [f"{name}: {result}" if name else str(result) for name, result in decodings.items()]
    misread = dict.fromkeys(each for result in decodings.values() for each in result.misread)
    lines += describe_misread([*misread])
    return lines, OK if all(result.ok for result in decodings.values()) else DIFFERENT


def list_outputs(report: Report) -> list[str | TextTable]:
    """Return the findings for the outputs, and the instruction sets of the processor."""
    rows = [(d.name, *_format_difference(d), verdict.value) for d, verdict in report.judged_outputs]
    bounds = [
        f"{d.name} is close: {d.bound}" for d, v in report.judged_outputs if v is Verdict.CLOSE
    ]
    worst = f" (the worst: {report.worst})" if report.samples > 1 and report.worst else ""
    samples = count(report.samples, "sample")
    is_plain = report.kernels == PLAIN_KERNELS
    kernels = "plain kernels, no delegate" if is_plain else "default delegate"
    return [
        f"LiteRT ({kernels}) and ONNX Runtime on {samples}{worst}:",
        TextTable(rows),
        *describe_kernels(report.outputs),
        *bounds,
        *describe_misread(report.misread),
        *_describe_sizes(report),
        f"instruction sets of this processor: {describe_sets(report.processor)}",
    ]


def _describe_sizes(report: Report) -> list[str]:
    """Return the findings at other sizes of the dynamic axes."""
    if report.other_sizes is None:
        return []
    texts = [f"{item} {'right' if item.ok else 'wrong'}" for item in report.other_sizes]
    return [f"other sizes of dynamic axes: {'; '.join(texts) or 'LiteRT runs none'}"]


def list_tensors(report: Report) -> list[str | TextTable]:
    """Return the findings for the tensors between the operators, and the latency if measured."""
    lines = _describe_tensors(report) if report.tensors or report.operators else []
    if not report.tensors:
        reason = (
            "the inner tensors of the ONNX model are unknown"
            if report.kernels == PLAIN_KERNELS
            else "LiteRT's delegate does not keep inner tensors"
        )
        lines.append(f"only the outputs are compared, because {reason}")
    if report.closed:
        codes = ", ".join(f"{number} {code}" for code, number in Counter(report.closed).items())
        lines.append(f"tensors inside sub-graphs are not compared, only the results of {codes}")
    return [*lines, *([] if report.latency is None else [f"time: {report.latency}"])]


def _describe_tensors(report: Report) -> list[str | TextTable]:
    """Return the number of each verdict, and the tensors that differ, wrong operators first."""
    comparisons, verdicts = report.tensors or report.operators, report.verdicts
    counts = Counter(verdicts[operator.name] for operator in comparisons)
    far, wrong = counts[Verdict.DIFFERS], counts[Verdict.WRONG]
    right = counts.total() - far - wrong
    counted = f"{right:,} right, {far:,} differ, {wrong:,} wrong"
    if counts[Verdict.CLOSE]:
        counted += f"; {counts[Verdict.CLOSE]:,} right by a wider limit"
    lines: list[str | TextTable] = [
        f"{count(len(comparisons), 'tensor')}, in order of execution: {counted}"
    ]
    if report.operators:
        number = count(len(report.operators), "operator")
        lines.append(f"{number}, each on LiteRT's own inputs: {wrong:,} wrong")
    differences = {operator.name: operator.difference for operator in report.operators}
    listed = [operator for operator in comparisons if not verdicts[operator.name].accepts]
    listed.sort(key=lambda operator: verdicts[operator.name] is not Verdict.WRONG)
    rows = [
        (
            f"{operator.operator} ({operator.index})",
            operator.name,
            *_format_difference(operator.difference),
            _format_alone(differences[operator.name]) if operator.name in differences else "",
            verdicts[operator.name].value,
        )
        for operator in listed[:_MOST]
    ]
    lines.append(TextTable(rows))
    if len(listed) > _MOST:
        lines.append(f"... and {len(listed) - _MOST:,} more")
    return lines


def _format_difference(difference: Difference) -> tuple[str, str]:
    """Return the largest difference, and the signal-to-noise ratio."""
    if difference.reason:
        return difference.reason, ""
    if not difference.largest:
        return "equal", ""
    largest = f"largest difference {difference.largest:.3g}, {difference.relative:.2g} of the range"
    return largest, f"{difference.decibels:.0f} dB"


def _format_alone(alone: Difference) -> str:
    """Return the largest difference of an operator on LiteRT's own inputs."""
    allowed = f"{alone.largest:.3g} on LiteRT's own inputs ({alone.allowed:.3g} is allowed)"
    return "" if alone.reason else allowed
