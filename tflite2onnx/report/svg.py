"""SVG figures of a page: tensors along the depth of a network, and its graph as a strip."""

import math
from collections.abc import Collection, Mapping

from tflite2onnx.report.graph_lanes import GraphRow, Line, Strip
from tflite2onnx.report.html import as_data, as_text, format_sizes, write_keys
from tflite2onnx.utils.console import shorten
from tflite2onnx.verification import Difference, Report, TensorComparison

_ROW, _LANE = 22, 12  # pixels
_REGIONS = (
    ("tflite", "as in TFLite"),
    ("first", "channels first"),
    ("other", "another order"),
    ("none", "few axes, or no tensor of the TFLite model"),
    ("move", "Transpose"),
)
_GRID = 20  # dB between two horizontal lines
_LINKED = 120  # the largest number of dots that lines join; more lines would fill the plot


def draw_depth(report: Report, bound: float | None) -> str:
    """Return a plot of the signal-to-noise ratio of the tensors of a report, in order of execution.

    Tensors below `bound` decibels fail; `bound` is None if the verdict is not based on noise.
    """
    chain, alone = report.tensors, report.operators
    far = {name for name, verdict in report.verdicts.items() if not verdict.accepts}
    kinds = {"bad": report.faults, "after": far - report.faults}
    order = {c.name: i for i, c in enumerate(chain or alone)}
    last = max(len(order) - 1, 1)
    finite = [d for c in (*chain, *alone) if math.isfinite(d := c.difference.decibels)]
    low = _GRID * math.floor(min((*finite, 0 if bound else 5 * _GRID)) / _GRID)
    high = _GRID * math.ceil(max((*finite, low + 2 * _GRID)) / _GRID)
    top = high + (high - low) / 8  # equal tensors are drawn at the top

    def compute_position(compared: TensorComparison) -> tuple[float, float]:
        decibels = compared.difference.decibels
        level = top if decibels == math.inf else max(decibels, low)
        return 1000 * order[compared.name] / last, 100 * (top - level) / (top - low)

    series = [
        _draw_series(kind, {c.name: compute_position(c) for c in items if c.name in order}, styles)
        for kind, items, styles in (
            ("alone", alone, {"bad": report.faults} if chain else kinds),
            ("chain", chain, kinds),
        )
    ]
    lines = [
        _draw_line(100 * (top - d) / (top - low), f"{d} dB") for d in range(low, high + 1, _GRID)
    ]
    lines.append(_draw_line(0, "equal"))
    if bound is not None:
        lines.append(_draw_line(100 * (top - bound) / (top - low), "", " bound"))
    by_name = {c.name: c for c in alone}
    points = [
        {
            "x": order[c.name] / last,
            "name": c.name,
            "lines": _write_tooltip(c, by_name.get(c.name), far),
        }
        for c in chain or alone
    ]
    named = [("chain", "computed in the network"), ("alone", "operator on LiteRT's inputs")]
    named += [("bad", "wrong"), ("after", "exceeds its limits, but its operator is not wrong")]
    drawn = [
        entry for entry, items in zip(named, (chain, alone, *kinds.values()), strict=True) if items
    ]
    return (
        '<div class="plot" tabindex="0" role="img" data-points="points" aria-label="signal to'
        f' noise of {len(order)} tensors">{"".join(lines)}<svg viewBox="0 0 1000 100"'
        f' preserveAspectRatio="none">{"".join(series)}</svg><div class="cursor"></div>'
        f'<div class="tip"></div></div>{write_keys(drawn)}'
        f"{as_data('points', points)}"
    )


def _draw_series(
    kind: str, points: Mapping[str, tuple[float, float]], kinds: Mapping[str, Collection[str]]
) -> str:
    """Return the dots of tensors, in the style `kind` if no other one of `kinds` has them."""
    if not points:
        return ""
    track = "L".join(f"{x:.2f},{y:.2f}" for x, y in points.values())
    link = f'<path class="link {kind}" d="M{track}"/>' if len(points) <= _LINKED else ""
    dots = dict.fromkeys((kind, *kinds), "")
    for name, (x, y) in points.items():
        style = next((style for style, names in kinds.items() if name in names), kind)
        dots[style] += f"M{x:.2f},{y:.2f}h0"
    return link + "".join(f'<path class="dot {style}" d="{d}"/>' for style, d in dots.items())


def _draw_line(y: float, label: str, kind: str = "") -> str:
    return f'<div class="grid{kind}" style="top:{y:.2f}%"><span>{as_text(label)}</span></div>'


def _write_tooltip(
    compared: TensorComparison, operator: TensorComparison | None, far: Collection[str]
) -> list[str]:
    lines = [
        f"{compared.operator}, operator {compared.index}",
        format_difference(compared.difference),
    ]
    if operator is not None:
        lines.append(f"alone: {format_difference(operator.difference)}")
    judged_tensor = compared if operator is None or operator.difference.ok else operator
    if compared.name in far and not judged_tensor.difference.ok:
        lines.append(judged_tensor.difference.complaint)
    return lines


def format_difference(difference: Difference) -> str:
    """Return the difference of a tensor in short form."""
    if difference.reason:
        return difference.reason
    if not difference.largest:
        return "equal"
    part = f"{difference.largest:.3g} at most, {difference.relative:.2g} of the range"
    return f"{difference.decibels:.1f} dB, {part}"


def draw_graph(picture: Strip) -> str:
    """Return a graph as a list of its nodes beside the lanes of their values."""
    gutter = picture.lanes * _LANE + _LANE
    height = len(picture.rows) * _ROW
    marks = "".join(_mark(i, row.kind, row.region, row.lane) for i, row in enumerate(picture.rows))
    curves = "".join(_draw_curve(line) for line in picture.lines)
    rows = "".join(
        f'<li class="{row.region or "none"}{" move" * (row.kind == "Transpose")}"'
        f' title="{as_text(row.name)}" data-key="{as_text(row.name)}"'
        f' data-attributes="{as_text(row.attributes)}" style="padding-left:{gutter}px">'
        f'<span class="kind">{as_text(row.kind)}</span><span class="shape">'
        f"{as_text(_describe_shape(row))}</span>"
        f'<span class="name">{as_text(shorten(row.name, 70))}</span></li>'
        for row in picture.rows
    )
    return (
        f"{write_keys(_REGIONS)}"
        f'<div class="strip" tabindex="0"><div><svg width="{gutter}" height="{height}">'
        f'<path class="value" d="{curves}"/>{marks}</svg><ol>{rows}</ol></div></div>'
    )


def _describe_shape(row: GraphRow) -> str:
    if row.shape is None:
        return ""
    return f"{format_sizes(row.shape)} {row.layout if row.region else ''}".rstrip()


def _compute_x(lane: int) -> int:
    return 4 + _LANE // 2 + lane * _LANE


def _compute_y(row: int) -> int:
    return row * _ROW + _ROW // 2


def _mark(row: int, kind: str, region: str, lane: int) -> str:
    x, y = _compute_x(lane), _compute_y(row)
    if kind == "Transpose":
        turned = f'transform="rotate(45 {x} {y})"'
        return f'<rect class="move" x="{x - 4}" y="{y - 4}" width="8" height="8" {turned}/>'
    return f'<circle class="{region or "none"}" cx="{x}" cy="{y}" r="3.5"/>'


def _draw_curve(line: Line) -> str:
    """Return the curve of a value: down its lane, then across to a node in another lane."""
    x, top = _compute_x(line.lane), _compute_y(line.row)
    parts, bottom = [], top
    for row, lane in line.ends:
        y = _compute_y(row)
        bend = y - _ROW * 3 // 4
        if lane == line.lane:
            bottom = max(bottom, y)
        else:
            bottom = max(bottom, bend)
            parts.append(f"M{x},{bend}C{x},{y} {_compute_x(lane)},{bend} {_compute_x(lane)},{y}")
    return f"M{x},{top}V{bottom}" + "".join(parts)
