"""The page: one self-contained file on a conversion and its numerical differences."""

import math
from collections import Counter
from dataclasses import astuple
from importlib.resources import files
from string import Template

from tflite2onnx.report import svg
from tflite2onnx.report.facts import PageFacts
from tflite2onnx.report.html import (
    as_bars,
    as_data,
    as_folded,
    as_paragraph,
    as_section,
    as_table,
    as_text,
    format_sizes,
    style_verdict,
)
from tflite2onnx.report.netron import write_netron_link
from tflite2onnx.utils.console import count
from tflite2onnx.utils.processor import describe_sets
from tflite2onnx.verification import Difference, Report, Verdict
from tflite2onnx.verification.inner_tensors import MOST_STEPS
from tflite2onnx.verification.results import describe_kernels, describe_misread
from tflite2onnx.version import VERSION

_WORST_FIRST = (Verdict.WRONG, Verdict.DIFFERS, Verdict.NOTHING_SHOWN, Verdict.CLOSE, Verdict.RIGHT)
# The style of a verdict on a model, the worst first.
STYLES = {
    Verdict.WRONG: "wrong",
    Verdict.NOTHING_SHOWN: "unshown",
    Verdict.CLOSE: "close",
    Verdict.RIGHT: "right",
}
_EQUAL = -99  # the decade in which tensors without a difference are counted
_SMALLEST = 1e-7  # the smallest fraction of the elements for which a bar is visible


def write_page(facts: PageFacts) -> str:
    """Return the page as HTML."""
    body = "\n".join(
        part
        for part in (
            _write_head(facts),
            _write_interface(facts),
            _write_depth(facts.report),
            _write_steps(facts.report),
            _write_tensors(facts),
            _write_graph(facts),
            _write_kinds(facts),
            _write_storage(facts),
            _write_rules(facts),
            as_data("details", {tensor.name: tensor.details for tensor in facts.tensors}),
            f"<footer>tflite2onnx {as_text(VERSION)}, seed {facts.report.seed}</footer>",
        )
        if part
    )
    return write_document(f"{facts.name} in ONNX", body)


def write_document(title: str, body: str) -> str:
    """Return a self-contained HTML document with the style and the script of the pages."""
    assets = files("tflite2onnx.report") / "assets"
    texts = {name: (assets / name).read_text("utf-8") for name in _ASSETS}
    return Template(texts["report.html"]).substitute(
        title=as_text(title),
        style=texts["report.css"],
        script=texts["report.js"],
        body=body,
    )


_ASSETS = ("report.html", "report.css", "report.js")


def _write_head(facts: PageFacts) -> str:
    report = facts.report
    entries = [
        ("Quantization", facts.scheme),
        ("TFLite", f"{count(facts.operators, 'operator')}, {_write_bytes(facts.tflite_bytes)}"),
        ("ONNX", f"{count(facts.nodes, 'node')}, {_write_bytes(facts.onnx_bytes)}"),
        ("Opset", facts.opset),
        ("Transposes", f"{facts.transposes:,}, {_write_bytes(facts.bytes_moved)} moved"),
        ("Compared", _describe_extent(report)),
        ("Processor", describe_sets(report.processor)),
        *([] if report.latency is None else [("Time, one thread", report.latency)]),
    ]
    cells = "".join(f"<div><dt>{as_text(k)}</dt><dd>{as_text(v)}</dd></div>" for k, v in entries)
    verdict = f"{_summarize(report)} {report.cause}".strip()
    kind, word = STYLES[report.verdict], report.verdict.conclusion
    return (
        f'<header>\n<h1>{as_text(facts.name)} in ONNX</h1>\n<p><span class="verdict {kind}">{word}.'
        f"</span> {as_text(verdict)}</p>\n<dl>{cells}</dl>\n</header>"
    )


def _describe_extent(report: Report) -> str:
    inner = len(report.tensors) or len(report.operators)
    subject = count(len(report.outputs), "output")
    subject += f" and {count(inner, 'tensor')}" if inner else ""
    worst = f" (the worst: {report.worst})" if report.samples > 1 and report.worst else ""
    return f"{subject}, on {count(report.samples, 'sample')}{worst}"


def _summarize(report: Report) -> str:
    first = report.diverging
    if first is not None:
        place = f"{first.operator} (operator {first.index}, {first.name})"
        return f"The first tensor that differs from LiteRT is the output of {place}."
    if not report.ok:
        return "The outputs differ from LiteRT's by more than rounding explains."
    words = ""
    if report.verdict is not Verdict.NOTHING_SHOWN:
        words = "ONNX Runtime and LiteRT agree within the limits of their arithmetic. "
    if report.nothing_shown:
        names = ", ".join(output.name for output in report.nothing_shown)
        words += f"These outputs are the same number everywhere, which shows nothing: {names}."
    sentences = describe_kernels(report.outputs)
    sentences += [
        f"{output.name} is accepted by a wider limit: {output.bound}"
        for output in report.outputs
        if output.is_relaxed
    ]
    sentences += describe_misread(report.misread)
    words += "".join(f" {sentence}." for sentence in sentences)
    if Verdict.DIFFERS in report.verdicts.values():
        words += (
            " Rounding errors accumulate in inner tensors, but no operator is wrong on its own."
        )
    return words.strip()


def _write_interface(facts: PageFacts) -> str:
    empty = ("", "", "")
    report = facts.report
    differences = {
        d.name: (*_format_numbers(d)[::2], style_verdict(report, name))
        for name, d in report.named_outputs
    }
    kinds = [("input", e) for e in facts.inputs] + [("output", e) for e in facts.outputs]
    rows = [
        (
            kind,
            end.name,
            end.dtype,
            f"{format_sizes(end.tflite_shape)} {end.shown_layout[0]}".rstrip(),
            f"{format_sizes(end.onnx_shape)} {end.shown_layout[1]}".rstrip(),
            *(differences.get(end.name, empty) if kind == "output" else empty),
        )
        for kind, end in kinds
    ]
    head = ("", "Name*", "Type", "TFLite", "ONNX", "Difference#", "Signal to noise#", "")
    return as_section("Inputs and outputs", as_table(head, rows))


def _write_depth(report: Report) -> str:
    chain, alone = report.tensors, report.operators
    if not (chain or alone):
        words = (
            "Only the outputs are compared, because the nodes of the ONNX model are not those that"
            " this version of tflite2onnx writes for the TFLite model."
        )
        return as_section("Along the depth of the network", as_paragraph(words))
    enough = [c.difference.enough for c in (*chain, *alone) if math.isfinite(c.difference.enough)]
    words = (
        "Each dot is the signal-to-noise ratio of a tensor, in order of execution; the noise is the"
        " difference from LiteRT. Rounding lowers the ratio gradually; an error lowers it abruptly."
    )
    if enough:
        words += " A tensor below the dashed line must be within one step, or within about the"
        words += " difference between LiteRT's own kernels. An operator that runs alone must be"
        words += " within its number of steps."
    plot = svg.draw_depth(report, max(enough) if enough else None)
    return as_section("Along the depth of the network", as_paragraph(words, "soft"), plot)


def _write_steps(report: Report) -> str:
    comparisons = report.tensors or report.operators
    counts = [0] * (MOST_STEPS + 1)
    for compared in comparisons:
        for i, number in enumerate(compared.steps):
            counts[i] += number
    total = sum(counts)
    if total:
        words = f"The {total:,} elements of quantized tensors, by how many steps they differ."
        words += " The bars are logarithmic."
        parts = [(i, number, number / total) for i, number in enumerate(counts) if number]
        rows = [
            (
                f"{i}{' or more' * (i == MOST_STEPS)}",
                _compute_bar_length(part),
                f"{number:,} ({100 * part:.3g} %)",
            )
            for i, number, part in parts
        ]
        return as_section("Differences in steps", as_paragraph(words, "soft"), as_bars(rows))
    decades = Counter(_find_decade(compared.difference.relative) for compared in comparisons)
    words = "The number of tensors by their largest difference, relative to their range."
    maximum = max(decades.values(), default=1)
    rows = [
        (_write_decade(decade), number / maximum, count(number, "tensor"))
        for decade, number in sorted(decades.items())
    ]
    return as_section("Differences", as_paragraph(words, "soft"), as_bars(rows) if rows else "")


def _find_decade(relative: float) -> int:
    if not relative:
        return _EQUAL
    return math.ceil(math.log10(min(1.0, max(1e-12, relative))))


def _write_decade(decade: int) -> str:
    if decade == _EQUAL:
        return "none"
    return f"up to 1e{decade}" if decade else "more than 0.1"


def _compute_bar_length(part: float) -> float:
    """Return the length of a bar on a log scale: fractions differ by orders of magnitude."""
    return max(0.01, 1 - math.log(part) / math.log(_SMALLEST))


def _write_tensors(facts: PageFacts) -> str:
    """Return the table of all tensors that operators compute, faults first."""
    report = facts.report
    chain = {c.name: c for c in report.tensors or report.operators}
    alone = {c.name: c for c in report.operators} if report.tensors else {}
    rows = {tensor.name: (tensor.index, tensor.operator) for tensor in facts.tensors}
    rows |= {c.name: (c.index, c.operator) for c in chain.values()}

    def sort_key(name: str) -> tuple[float, ...]:
        if name not in chain:
            return len(_WORST_FIRST), rows[name][0]
        is_fault = name in report.faults
        order = _WORST_FIRST.index(report.verdicts[name])
        return -1 if is_fault else order, chain[name].difference.decibels

    names = sorted(rows, key=sort_key)
    cells = (
        (
            *rows[name],
            name,
            *(_format_numbers(chain[name].difference) if name in chain else ("", "", "")),
            *([_format_snr(alone[name].difference) if name in alone else ""] if alone else []),
            style_verdict(report, name) if name in report.verdicts else "",
        )
        for name in names
    )
    head = (
        "No.#",
        "Operator",
        "Tensor*",
        "Difference#",
        "Of the range#",
        "Signal to noise#",
        *["Alone#"] * bool(alone),
        "",
    )
    words = (
        "All tensors that operators compute, faults first, then by noise. A click on a row shows"
        " attributes, layouts and storage; a click on a heading sorts."
        f"{' Alone: the operator runs on the inputs that it has in LiteRT.' * bool(alone)}"
    )
    table = as_table(head, cells, names) if names else ""
    return as_section("Operators and tensors", as_paragraph(words, "soft"), table) if table else ""


def _format_numbers(difference: Difference) -> tuple[str, str, str]:
    if difference.reason:
        return difference.reason, "", ""
    return f"{difference.largest:.3g}", f"{difference.relative:.2g}", _format_snr(difference)


def _format_snr(difference: Difference) -> str:
    if difference.reason:
        return difference.reason
    return f"{difference.decibels:.1f} dB" if difference.largest else "equal"


def _write_graph(facts: PageFacts) -> str:
    words = (
        "The nodes of the ONNX model in order of execution, with the values that are live at each"
        " node beside them. The colour shows the layout in which a tensor is stored. QuantizeLinear"
        " and DequantizeLinear are left out."
    )
    link = write_netron_link(facts.file)
    return as_section("Graph", as_paragraph(words, "soft"), link, svg.draw_graph(facts.strip))


def _write_kinds(facts: PageFacts) -> str:
    rows = [
        (kind, before or "", after or "")
        for kind, (before, after) in facts.kinds.items()
        if before != after
    ]
    words = (
        "Types of nodes whose number ONNX Runtime's optimizations change. Types that the file does"
        " not have are fused operators."
    )
    table = as_table(("Node~", "In the file#", "When it runs#"), rows) if rows else ""
    return as_section("Fused operators", as_paragraph(words, "soft") if table else "", table)


def _write_storage(facts: PageFacts) -> str:
    words = (
        "The storage of each quantized tensor in both models, and how operators read it. Tensors"
        " with the same reason are in one list."
    )
    head = ("Tensor*", "Operator", "TFLite~", "ONNX~", "Read and written~")
    reasons: dict[str, list[tuple[str, ...]]] = {}
    for storage in facts.storage:
        *cells, reason = astuple(storage)
        reasons.setdefault(reason, []).append(tuple(cells))
    folded = [
        as_folded(
            count(len(rows), "tensor"), reason, as_table(head, rows, [row[0] for row in rows])
        )
        for reason, rows in sorted(reasons.items(), key=lambda entry: -len(entry[1]))
    ]
    return as_section("Storage", as_paragraph(words, "soft"), *folded) if folded else ""


def _write_rules(facts: PageFacts) -> str:
    words = (
        "The rules and passes that change operators and nodes, and why others do not apply; times"
        " are expected, in microseconds."
    )
    lists = {"rules and forms": facts.changes, "rules that do not apply": facts.losses}
    folded = [
        as_folded(count(len(texts), "line"), title, *(as_paragraph(text, "soft") for text in texts))
        for title, texts in lists.items()
        if texts
    ]
    return as_section("Rules", as_paragraph(words, "soft"), *folded) if folded else ""


def _write_bytes(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"
