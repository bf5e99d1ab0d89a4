r"""Latency of converted models beside LiteRT, and where ONNX Runtime spends its time.

Over files and folders of .tflite models::

    python scripts/latency.py assets/models --html latency.html \
        --command 'tf2onnx=python -m tf2onnx.convert --tflite {tflite} --output {onnx}'

The tflite2onnx of this Python converts each model, and so does each further command. One process
runs LiteRT with its default delegate and all ONNX models, in turns on the same number of threads;
see `inference.py`. The time of a model is the lower quartile of its turns, which other processes on
the machine change less than the median. A ratio is the time of the ONNX model divided by that of
LiteRT. Then ONNX Runtime profiles the model of tflite2onnx:

- nodes: the nodes that run, after ONNX Runtime's optimizations;
- reorders: ReorderInput and ReorderOutput, the nodes that move data into the blocks of channels in
  which convolutions compute, and out of them;
- expected: the time that the table in `costs.py` expects of the float
  convolutions and reorders, divided by the time that they took. The factors are fitted on this
  processor first (`fit_convolutions.py`). Far from 1, the model is wrong;
- operators: those that take the most time, each with its share of the time of all nodes.

There is a table for networks of floats (float16 weights included), one for networks of 8-bit
integers, one for networks of dynamic range (float data, integer weights), and one for all others.
The first line names the processor: a ratio is a ratio of this processor. For models that take more
than 1.1 times the time of LiteRT a further table shows where the time goes: the nodes by type and
window, the share of their time, the mean time of a node, and the multiplications in a second.
`--html` writes the ratios as a bar chart.

`--nodes` counts the nodes of each command's model, for networks whose time is that of their nodes
(`--most 0.3`). `--start` measures what an application sees first: the milliseconds until a model
is loaded, and the MB of 10^6 bytes that the first run needs, each in a process of its own.

With `--target openvino` the package openvino runs the ONNX models of all commands, and no nodes
are profiled.
"""

import usage  # noqa: F401 - packages may be missing

import argparse
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import chain
from math import inf, isnan, nan, prod
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmark import (
    LITERT,
    OURS,
    Latency,
    Race,
    convert,
    format_number,
    inferences,
    named_command,
)
from fit_convolutions import (
    CHAINS,
    describe_node,
    find_block,
    fit_kernels,
    profile_model,
)
from inference import infer, measure_start
from isolation import in_new_process

from tflite2onnx.errors import ModelFileError
from tflite2onnx.inspection import find_scheme
from tflite2onnx.reader.model import read_model
from tflite2onnx.targets.onnxruntime.costs import Factors
from tflite2onnx.utils.processor import describe_processor
from tflite2onnx.verification.latency import NodeTime, find_quartile, find_shares

REORDERS = ("ReorderInput", "ReorderOutput")
TOP = 3  # the number of operators, or of groups of nodes, that are shown
SLOW = 1.1  # the nodes of a model are shown above this ratio
COLOURS = ("#1a73e8", "#e8710a", "#9334e6", "#188038")
FAMILIES = ("floats", "8-bit integers", "dynamic range", "other types")
WEIGHTED = ("Conv", "FusedConv", "Gemm", "FusedGemm", "QLinearConv", "QGemm")


@dataclass(frozen=True)
class More:
    """Which further columns the tables have: the nodes of each command, load times and memory.

    `factors` are those of the expected times of convolutions on this processor.
    """

    nodes: bool = False
    start: bool = False
    factors: Mapping[str, Factors] = field(default_factory=dict)

    def name_columns(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the names of the columns."""
        if self.nodes:
            yield from (f"{name} nodes" for name in names[1:])
        if self.start:
            yield from ("LiteRT load ms", "load ms", "LiteRT MB", "MB")


@dataclass(frozen=True)
class Row:
    """A model: the milliseconds in LiteRT, the ratio of each command, and the nodes of ours."""

    model: str
    family: str
    litert: float
    ratios: dict[str, float]
    nodes: tuple[NodeTime, ...] = ()
    messages: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    expected: float = nan

    @cached_property
    def top(self) -> str:
        """The types of nodes that take the most time."""
        shares = find_shares(self.nodes)[:TOP]
        return ", ".join(f"{name} {share:.0%}" for name, share in shares)

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table as text."""
        ratios = (format_number(ratio, 2) for ratio in self.ratios.values())
        reorders = sum(node.kind in REORDERS for node in self.nodes)
        expected = format_number(self.expected, 2)
        numbers = (str(len(self.nodes)), str(reorders), expected)
        return (self.model, format_number(self.litert, 3), *ratios, *self.more, *numbers, self.top)

    def groups(self) -> list[tuple[str, ...]]:
        """Return the groups of nodes that take the most time, as rows of text."""
        groups: dict[str, list[NodeTime]] = defaultdict(list)
        for node in self.nodes:
            groups[name_group(node)].append(node)
        spent = {name: sum(node.seconds for node in group) for name, group in groups.items()}
        whole = sum(spent.values()) or 1
        return [
            (
                self.model,
                name,
                str(len(groups[name])),
                f"{spent[name] / whole:.0%}",
                format_number(1e6 * spent[name] / len(groups[name]), 1),
                format_number(count_products(groups[name]) / (spent[name] or nan) / 1e9, 1),
            )
            for name in sorted(spent, key=lambda name: -spent[name])[:TOP]
        ]


def compare_with_expectation(nodes: Sequence[NodeTime], factors: Mapping[str, Factors]) -> float:
    """Return the expected time of float convolutions and reorders divided by the measured time."""
    described = [(node, describe_node(node, find_block())) for node in nodes]
    known = [(node, *each) for node, each in described if each is not None]
    expected = sum(factors[kernel].estimate(terms) for _, kernel, terms in known)
    measured = sum(1e6 * node.seconds for node, *_ in known)
    return expected / measured if measured else nan


def find_weights(node: NodeTime) -> tuple[int, ...]:
    """Return the shape of the weights, () if there are none: scales have fewer than two axes."""
    shapes = [shape for shape in node.inputs if len(shape) > 1]
    return shapes[1] if node.kind in WEIGHTED and len(shapes) > 1 else ()


def name_group(node: NodeTime) -> str:
    """Return the type of a node, and of a convolution the window and whether it is depthwise."""
    outputs, inputs, *window = find_weights(node) or (0, 0)
    depthwise = " depthwise" if inputs == 1 < outputs else ""
    return f"{node.kind}{depthwise} {'x'.join(map(str, window))}" if window else node.kind


def count_products(nodes: Sequence[NodeTime]) -> float:
    """Return the number of multiplications by weights, NaN if the nodes have no weights."""
    total = 0.0
    for weights, node in ((find_weights(node), node) for node in nodes):
        if weights:
            # The outputs are the first axis of filters. In weights of Gemm they may be the last
            # axis.
            outputs = weights[0] if len(weights) > 2 else node.outputs[0][-1]
            total += prod(weights) * prod(node.outputs[0]) / (outputs or 1)
    return total or nan


def find_family(model: Path) -> str:
    """Return which of the tables shows a model; a damaged file is among the other types."""
    try:
        types = find_scheme(read_model(model).graphs)
    except ModelFileError:
        return "other types"
    if types.startswith("dynamic range"):
        return "dynamic range"
    if "int" not in types:
        return "floats"
    return "other types" if "int16" in types else "8-bit integers"


def has_time(model: Path, threads: int, least: float, most: float) -> bool:
    """Return whether LiteRT may run a model in `least` to `most` milliseconds.

    A model that ends the process is left out with a message: it would end the measurement, too.
    """
    try:
        ((seconds, _),) = in_new_process(infer, [model], 3, threads)
    except BrokenProcessPool:
        sys.stderr.write(f"LiteRT ends the process: {model}\n")
        return False
    return not seconds or (1e3 * max(seconds) >= least and 1e3 * min(seconds) <= most)


def measure(race: Race, model: Path, threads: int, runtime: str, more: More) -> Row:
    """Measure a model in LiteRT and with each command, and profile the first command's model."""
    # The names of published models have their folders before the last "__".
    name = model.stem.rpartition("__")[2]
    try:
        group = {m.command: m for m in inferences(race, model, threads, runtime)}
    except BrokenProcessPool:  # the child process has ended, for example for lack of memory
        unknown = dict.fromkeys(race.commands, nan)
        return Row(name, find_family(model), nan, unknown, (), (f"{model}: a runtime ended",))
    litert = group.pop(LITERT)
    time = find_seconds(litert)
    ratios = {name: find_seconds(m) / time for name, m in group.items()}
    messages = tuple(describe_failure(m) for m in (litert, *group.values()) if m.failed)
    row = Row(name, find_family(model), 1e3 * time, ratios, (), messages)
    if runtime != "onnxruntime":
        return row
    nodes: dict[str, tuple[NodeTime, ...]] = dict.fromkeys(race.commands, ())
    starts = [start_model(model, threads)] if more.start else []
    first = next(iter(race.commands))
    with TemporaryDirectory() as directory:
        for command in race.commands if more.nodes else [first]:
            if group[command].failed:
                continue
            onnx = Path(directory) / "model.onnx"
            convert(race.commands[command], model, onnx, race.timeout)
            nodes[command] = tuple(in_new_process(profile_model, onnx))
            if more.start and command == first:
                starts.append(start_model(onnx, threads))
            onnx.unlink()
    counts = [str(len(nodes[each]) or "-") for each in [*race.commands][1:] if more.nodes]
    expected = compare_with_expectation(nodes[first], more.factors)
    cells = (*counts, *format_starts(more, starts))
    return replace(row, nodes=nodes[first], more=cells, expected=expected)


def start_model(path: Path, threads: int) -> tuple[float, float]:
    """Return the seconds until a model is loaded, and the MB that a run needs."""
    return in_new_process(measure_start, path, threads)


def format_starts(more: More, starts: Sequence[tuple[float, float]]) -> Iterator[str]:
    """Yield milliseconds and MB in LiteRT and in ONNX Runtime; dashes if one did not run."""
    if more.start:
        known = [*starts, (nan, nan), (nan, nan)][:2]
        for factor, numbers in zip((1e3, 1), zip(*known, strict=True), strict=True):
            yield from (format_number(factor * number, 1) for number in numbers)


def find_seconds(measured: Latency) -> float:
    """Return the lower quartile of the seconds of the turns, NaN if the model did not run."""
    return find_quartile(measured.seconds) if measured.seconds else nan


def describe_failure(failed: Latency) -> str:
    """Return why a model did not run."""
    return f"{failed.command}, {failed.model}: {failed.status}: {failed.message}"


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def format_report(rows: Sequence[Row], names: Sequence[str], more: More) -> str:
    """Return a table for each family with the median ratios, the slow nodes, and the failures."""
    ours, *_ = names
    columns = (
        "model",
        "LiteRT ms",
        *(f"{name} x" for name in names),
        *more.name_columns(names),
        "nodes",
        "reorders",
        "expected",
        "time",
    )
    text = ""
    for family in FAMILIES:
        group = sorted((row for row in rows if row.family == family), key=lambda row: row.model)
        if group:
            text += f"Networks of {family}:\n\n"
            text += format_table(columns, [row.cells() for row in group])
        for name in names:
            known = [row.ratios[name] for row in group if not isnan(row.ratios[name])]
            if known:
                text += f"\n{name}: median {median(known):.2f}, largest {max(known):.2f}\n"
        text += "\n" if group else ""
    slow = [row for row in rows if row.ratios[ours] > SLOW]
    if slow:
        columns = ("model", "nodes of a type", "number", "time", "us a node", "G products/s")
        text += f"Above {SLOW} times the time of LiteRT:\n\n"
        text += format_table(columns, [*chain(*(row.groups() for row in slow))])
    return text + "".join(f"\n{message}\n" for row in rows for message in row.messages)


def draw_bar(ratio: float, scale: float, place: tuple[int, int], colour: str, title: str) -> str:
    """Return a bar, `scale` pixels for a ratio of 1, with its number after it."""
    x, y = place
    return (
        f'<rect x="{x}" y="{y}" width="{ratio * scale:.1f}" height="12" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
        f'<text x="{x + ratio * scale + 4:.1f}" y="{y + 11}">{ratio:.2f}</text>'
    )


def draw_chart(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return a page with a bar for each ratio; the line is LiteRT's time."""
    largest = max((r for row in rows for r in row.ratios.values() if not isnan(r)), default=1)
    scale, height, left = 600 / max(largest, 1), 14, 420
    bars, y = [], 30
    for row in rows:
        bars.append(
            f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(row.model)}</text>'
        )
        for name, colour in zip(names, COLOURS * len(names), strict=False):
            if not isnan(row.ratios[name]):
                title = f"{name}: {row.top}"
                bars.append(draw_bar(row.ratios[name], scale, (left, y), colour, title))
            y += height
        y += 6
    key = " ".join(
        f'<tspan fill="{colour}">{escape(name)}</tspan>'
        for name, colour in zip(names, COLOURS * len(names), strict=False)
    )
    line = f'<line x1="{left + scale}" x2="{left + scale}" y1="22" y2="{y}" stroke="black"/>'
    return (
        "<!doctype html><meta charset=utf-8><title>Latency</title>"
        f'<svg xmlns="http://www.w3.org/2000/svg" width="1100" height="{y + 10}"'
        ' font-family="sans-serif" font-size="11">'
        f'<text x="8" y="16">Time in ONNX Runtime, LiteRT = 1 (line): {key}</text>'
        f"{line}{''.join(bars)}</svg>\n"
    )


def find_models(paths: Sequence[Path]) -> list[Path]:
    """Return the models among paths and in folders, in alphabetical order."""
    found = [sorted(p.rglob("*.tflite")) if p.is_dir() else [p] for p in paths]
    return [path for each in found for path in each]


def main() -> None:
    """Read the command line, measure all models, and print the table."""
    parser = argparse.ArgumentParser(description="Latency beside LiteRT, and its causes.")
    add = parser.add_argument
    add("models", nargs="+", type=Path, metavar="model.tflite or folder")
    add("--command", action="append", type=named_command, metavar="'NAME=... {tflite} {onnx}'")
    add("--runs", type=int, default=20, help="counted turns of each model (default 20)")
    add("--threads", type=int, default=1, help="of each inference (default 1)")
    add("--timeout", type=float, default=600, help="seconds each conversion may take")
    add("--least", type=float, default=0, help="leave out what LiteRT runs in fewer milliseconds")
    add("--most", type=float, default=inf, help="leave out what LiteRT runs in more milliseconds")
    add("--nodes", action="store_true", help="count the nodes of all commands")
    add("--start", action="store_true", help="measure the load time, and the memory of a run")
    add("--only", choices=FAMILIES, help="measure the models of one table only")
    add("--target", default="onnxruntime", help="the --target of our conversions")
    add("--html", type=Path, help="also write a bar chart of the ratios to this file")
    options = parser.parse_args()
    ours = named_command(f"{OURS} --target {shlex.quote(options.target)}")
    race = Race(dict([ours, *(options.command or [])]), options.runs, options.timeout)
    runtime = "openvino" if options.target == "openvino" else "onnxruntime"
    models = find_models(options.models)
    if missing := [str(model) for model in models if not model.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    threads, least, most = options.threads, options.least, options.most
    factors = in_new_process(fit_kernels, CHAINS, find_block()) if models else {}
    more = More(options.nodes, options.start, factors)
    measured = (
        measure(race, m, threads, runtime, more)
        for m in models
        if options.only in {None, find_family(m)} and has_time(m, threads, least, most)
    )
    rows = [row for row in measured if isnan(row.litert) or least <= row.litert <= most]
    names = list(race.commands)
    sys.stdout.write(f"Processor: {describe_processor()}; threads: {threads}\n\n")
    sys.stdout.write(format_report(rows, names, more))
    if options.html:
        options.html.write_text(draw_chart(rows, names))


if __name__ == "__main__":
    main()
