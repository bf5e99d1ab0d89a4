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
- operators: those that take the most time, each with its share of the time of all nodes.

`--html` writes the ratios as a bar chart.
"""

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from math import isnan
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmark import (
    LITERT,
    OURS,
    Latency,
    Race,
    format_number,
    inferences,
    named_command,
)
from inference import onnx_feeds

REORDERS = ("ReorderInput", "ReorderOutput")
TOP = 3  # operators that are shown
COLOURS = ("#1a73e8", "#e8710a", "#9334e6", "#188038")


@dataclass(frozen=True)
class Profile:
    """The nodes of an ONNX model that run, and the share of the time by type of node."""

    nodes: int = 0
    reorders: int = 0
    shares: tuple[tuple[str, float], ...] = ()

    @property
    def top(self) -> str:
        """The types of nodes that take the most time."""
        return ", ".join(f"{name} {share:.0%}" for name, share in self.shares[:TOP])


@dataclass(frozen=True)
class Row:
    """A model: the milliseconds in LiteRT, the ratio of each command, and the profile of ours."""

    model: str
    litert: float
    ratios: dict[str, float]
    profile: Profile
    messages: tuple[str, ...] = ()

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table as text."""
        ratios = (format_number(ratio, 2) for ratio in self.ratios.values())
        numbers = (str(self.profile.nodes), str(self.profile.reorders))
        return (self.model, format_number(self.litert, 3), *ratios, *numbers, self.profile.top)


def profile_model(path: Path, runs: int) -> Profile:
    """Run an ONNX model on one thread, and return the profile of all runs but the first."""
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.enable_profiling = True
    options.profile_file_prefix = str(path.with_suffix(""))
    session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
    feeds = onnx_feeds(session)
    for _ in range(1 + runs):
        session.run(None, feeds)
    times: dict[tuple[str, str], list[float]] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            key = (event["args"]["op_name"], event["name"])
            times.setdefault(key, []).append(event["dur"])
    return summarize_times(times)


def summarize_times(times: dict[tuple[str, str], list[float]]) -> Profile:
    """Return the profile of the times of nodes, by type and name; the first time warms up."""
    nodes = Counter(kind for kind, _ in times)
    spent: Counter[str] = Counter()
    for (kind, _), each in times.items():
        spent[kind] += median(each[1:] or each)
    whole = sum(spent.values()) or 1
    shares = tuple((kind, time / whole) for kind, time in spent.most_common())
    return Profile(sum(nodes.values()), sum(nodes[kind] for kind in REORDERS), shares)


def measure(race: Race, model: Path, threads: int) -> Row:
    """Measure a model in LiteRT and with each command, and profile the first command's model."""
    group = {m.command: m for m in inferences(race, model, threads)}
    litert = group.pop(LITERT)
    time = find_quartile(litert)
    ratios = {name: find_quartile(m) / time for name, m in group.items()}
    messages = tuple(describe_failure(m) for m in (litert, *group.values()) if m.failed)
    row = Row(model.name, 1e3 * time, ratios, Profile(), messages)
    first = next(iter(race.commands))
    if group[first].failed:
        return row
    with TemporaryDirectory() as directory:
        onnx = Path(directory) / "model.onnx"
        import_module("benchmark").convert(race.commands[first], model, onnx, race.timeout)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return replace(row, profile=pool.submit(profile_model, onnx, race.turns).result())


def find_quartile(measured: Latency) -> float:
    """Return the lower quartile of the seconds of the turns, NaN if the model did not run."""
    times = sorted(measured.seconds)
    return times[len(times) // 4] if times else float("nan")


def describe_failure(failed: Latency) -> str:
    """Return why a model did not run."""
    return f"{failed.command}, {failed.model}: {failed.status}: {failed.message}"


def format_table(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Return the rows as a Markdown table, then the median ratios and the failures."""
    columns = ("model", "LiteRT ms", *(f"{name} x" for name in names), "nodes", "reorders", "time")
    lines = [columns, ("---",) * len(columns), *(row.cells() for row in rows)]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    for name in names:
        known = [row.ratios[name] for row in rows if not isnan(row.ratios[name])]
        if known:
            text += f"\n{name}: median {median(known):.2f}, largest {max(known):.2f}\n"
    return text + "".join(f"\n{message}\n" for row in rows for message in row.messages)


def draw_bar(ratio: float, scale: float, place: tuple[int, int], colour: str, title: str) -> str:
    """Return a bar, `scale` pixels for a ratio of 1, with its number behind it."""
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
                title = f"{name}: {row.profile.top}"
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
    add("--html", type=Path, help="also write a bar chart of the ratios to this file")
    options = parser.parse_args()
    race = Race(
        dict([named_command(OURS), *(options.command or [])]), options.runs, options.timeout
    )
    models = find_models(options.models)
    if missing := [str(model) for model in models if not model.is_file()]:
        parser.error(f"no such file: {', '.join(missing)}")
    measured = (measure(race, model, options.threads) for model in models)
    rows = [row for row in measured if isnan(row.litert) or row.litert >= options.least]
    names = list(race.commands)
    sys.stdout.write(format_table(rows, names))
    if options.html:
        options.html.write_text(draw_chart(rows, names))


if __name__ == "__main__":
    main()
