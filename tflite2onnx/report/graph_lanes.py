"""A graph as a strip: one node per row in order of execution, values in lanes beside the nodes.

A lane is a column that a value occupies from the node that produces it to its last reader. A value
takes the lowest free lane. A node takes the lane of an input if no later node reads the input. The
number of lanes is the largest number of values that are still to be read at a time. The number of
rows is the number of nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import onnx

from tflite2onnx.builder.builder import Port
from tflite2onnx.builder.messages import list_reads
from tflite2onnx.interface import make_endpoint
from tflite2onnx.layout import make_channels_first, make_identity
from tflite2onnx.report.html import shorten_value

# Nodes that only quantize or dequantize. They are left out, because runtimes fuse them.
_PAIRS = {"DequantizeLinear", "QuantizeLinear"}
_LAYOUT_RANK = 3  # the smallest rank for which layouts are distinguished


@dataclass(frozen=True)
class GraphRow:
    """A node: `lane` is its column; `name` and `shape` belong to its output, None if unknown.

    `region` is the layout of the output: "tflite", "first" (channels first), "other", or "" if no
    TFLite tensor or no layout is known. `layout` is the layout in letters, and `attributes` are
    lines of text.
    """

    kind: str
    name: str
    shape: tuple[int | str, ...] | None
    region: str
    layout: str
    lane: int
    attributes: str = ""


class Line(NamedTuple):
    """A value, from the row and lane of its producer to the (row, lane) of a reader."""

    row: int
    lane: int
    ends: tuple[tuple[int, int], ...]


class Strip(NamedTuple):
    """Rows from top to bottom, the lines between them, and the number of lanes."""

    rows: tuple[GraphRow, ...]
    lines: tuple[Line, ...]
    lanes: int


class _LaneNode(NamedTuple):
    """A node before it is placed: the values that it reads and writes."""

    kind: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    attributes: str = ""


def build_strip(
    proto: onnx.ModelProto, tensors: Sequence[Port], weights: Iterable[str] = ()
) -> Strip:
    """Return the strip of a model's main graph.

    `tensors` describe its values, and `weights` are the names of constants that the graph lacks.
    """
    graph = proto.graph
    constants = {weight.name for weight in graph.initializer} | {*weights}
    sources: dict[str, str] = {}  # from a value to an earlier value that has the same elements
    inputs = [weight.name for weight in graph.input if weight.name not in constants]
    steps = [_LaneNode("input", (), (name,)) for name in inputs]
    steps += _list_steps(graph.node, sources, constants)
    steps += [
        _LaneNode("output", (sources.get(weight.name, weight.name),), ()) for weight in graph.output
    ]
    ports = {sources.get(port.name, port.name): port for port in reversed(tensors)}
    shapes = {
        weight.name: tuple(d.dim_param or d.dim_value for d in weight.type.tensor_type.shape.dim)
        for weight in (*graph.input, *graph.value_info, *graph.output)
    }
    return _place_nodes(steps, ports, shapes)


def _list_steps(
    nodes: Sequence[onnx.NodeProto], sources: dict[str, str], constants: set[str]
) -> Iterator[_LaneNode]:
    """Yield the nodes; a node that reads only constants is a constant, because runtimes fold it."""
    known_constants = set(constants)
    for node in nodes:
        reads = [sources.get(name, name) for name in list_reads(node)]
        if node.op_type == "Constant" or (reads and known_constants.issuperset(reads)):
            known_constants.update(node.output)
        elif node.op_type in _PAIRS:
            sources[node.output[0]] = reads[0]
        elif node.op_type == "If" and reads[0] in known_constants:  # a choice by the processor
            first = next(a.g for a in node.attribute if a.name == "then_branch")
            copies = [each for each in first.node if each.op_type == "Identity"]
            others = [each for each in first.node if each.op_type != "Identity"]
            yield from _list_steps(others, sources, known_constants)
            sources |= {
                copy.output[0]: sources.get(copy.input[0], copy.input[0]) for copy in copies
            }
            for outer, made in zip(node.output, first.output, strict=True):
                sources[outer] = sources.get(made.name, made.name)
        else:
            values = tuple(name for name in node.output if name)
            words = "\n".join(map(_describe_attribute, node.attribute))
            yield _LaneNode(node.op_type, tuple(dict.fromkeys(reads)), values, words)


def _describe_attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return f"{attribute.name}: a graph of {len(attribute.g.node):,} nodes"
    value = onnx.helper.get_attribute_value(attribute)
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return f"{attribute.name}: {shorten_value(text)}"


def _place_nodes(
    steps: Sequence[_LaneNode],
    ports: Mapping[str, Port],
    shapes: Mapping[str, tuple[int | str, ...]],
) -> Strip:
    last = {name: i for i, step in enumerate(steps) for name in step.reads}
    lanes: dict[str, int] = {}  # the lane of each value that later nodes read
    lines: dict[str, Line] = {}
    rows: list[GraphRow] = []
    widest = 0
    for i, step in enumerate(steps):
        reads = [name for name in step.reads if name in lanes]
        ending = [name for name in reads if last[name] == i]
        lane = lanes[ending[0]] if ending else _free_lane(lanes)
        for name in reads:
            line = lines[name]
            lines[name] = line._replace(ends=(*line.ends, (i, lane)))
        for name in ending:
            del lanes[name]
        widest = max(widest, lane, *lanes.values(), 0)
        for name in step.makes:
            taken = lane if lane not in lanes.values() else _free_lane(lanes)
            lines[name] = Line(i, taken, ())
            if last.get(name, -1) > i:
                lanes[name] = taken
        rows.append(_make_row(step, lane, ports, shapes))
    drawn = tuple(line for line in lines.values() if line.ends)
    return Strip(_fill_regions(rows, drawn), drawn, widest + 1)


def _fill_regions(rows: Sequence[GraphRow], lines: Sequence[Line]) -> tuple[GraphRow, ...]:
    """Give nodes inside an operator the layout of the nodes that read them, for each rank."""
    readers = {line.row: line.ends[0][0] for line in reversed(lines)}
    regions = list(rows)
    for i in reversed(range(len(regions))):
        row, after = regions[i], regions[readers.get(i, i)]
        ranks = {None if each.shape is None else len(each.shape) for each in (row, after)}
        alike = len(ranks) == 1 and None not in ranks
        if not row.region and not row.layout and alike and after.kind != "Transpose":
            regions[i] = replace(row, region=after.region, layout=after.layout)
    return tuple(regions)


def _free_lane(lanes: Mapping[str, int]) -> int:
    taken = set(lanes.values())
    return next(lane for lane in count() if lane not in taken)


def _make_row(
    step: _LaneNode,
    lane: int,
    ports: Mapping[str, Port],
    shapes: Mapping[str, tuple[int | str, ...]],
) -> GraphRow:
    values = step.makes or step.reads
    port = next((ports[name] for name in values if name in ports), None)
    shape = next((shapes[name] for name in values if name in shapes), None)
    name = port.tensor.name if port else (values[0] if step.kind in ("input", "output") else "")
    if port is None:
        return GraphRow(step.kind, name, shape, "", "", lane, step.attributes)
    end = make_endpoint(port.tensor, port.order, "", port.dtype, port.letters)
    region = find_region(port.order)
    layout = end.shown_layout[1]
    return GraphRow(step.kind, name, end.onnx_shape, region, layout, lane, step.attributes)


def find_region(order: tuple[int, ...]) -> str:
    """Return the region of an order: "tflite", "first", "other", or "" if the rank is small."""
    rank = len(order)
    if rank < _LAYOUT_RANK:
        return ""
    if order == make_identity(rank):
        return "tflite"
    return "first" if order == make_channels_first(rank) else "other"
