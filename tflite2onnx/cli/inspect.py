"""`tflite2onnx inspect MODEL`: show a model or bundle, and the operators that can be converted."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tflite2onnx.bundle import Bundle, is_bundle, read_bundle
from tflite2onnx.cli.standard_streams import read_source
from tflite2onnx.graph_text import write_graph
from tflite2onnx.inspection import Inspection, SubgraphInfo, TensorInfo, inspect
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import open_source
from tflite2onnx.storage_table import StorageInfo
from tflite2onnx.utils.console import TextTable, count, print_json, print_lines

SUMMARY = "Show the contents of a model and which operators can be converted; write nothing."
EPILOG = """\
exit status:
  0    the model can be converted
  1    the model cannot be converted or read; the table or stderr has the reason
"""

_WIDTH = 100  # characters of a value of the metadata


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "model",
        metavar="MODEL.tflite",
        help="the model or bundle (.task, .litertlm) to show; - is standard input",
    )
    parser.add_argument(
        "--storage",
        action="store_true",
        help="also list how each quantized tensor is stored in ONNX, how it is read, and why",
    )
    parser.add_argument(
        "--graph", action="store_true", help="also print each operator and its tensors as a line"
    )
    parser.add_argument("--json", action="store_true", help="print the contents as JSON")


def run_command(options: argparse.Namespace) -> int:
    """Print the contents of the model; return 0 if it can be converted, 1 if not."""
    source = read_source(options.model)
    bundle = read_bundle(source) if is_bundle(source) else Bundle({"": open_source(source)})
    inspections = {name: inspect(model) for name, model in bundle.models.items()}
    if options.json:
        contents = {name: inspection.to_dict() for name, inspection in inspections.items()}
        described = {"container": bundle.description} if bundle.description else {}
        print_json(contents.get("", described | contents))
    elif not options.quiet:
        lines = [
            *_list_container(bundle.description),
            *_list_inspections(inspections, storage=options.storage),
        ]
        print_lines(sys.stdout, lines, wide=options.wide)
        if options.graph:
            graphs = [
                graph for model in bundle.models.values() for graph in read_model(model).graphs
            ]
            print_lines(sys.stdout, (f"\n{graph.name}:\n{write_graph(graph)}" for graph in graphs))
    return 0 if all(inspection.opset is not None for inspection in inspections.values()) else 1


def _list_container(description: Mapping[str, Any]) -> Iterator[str | TextTable]:
    """Yield the sections of a container of a language model, and its metadata."""
    if not description:
        return
    yield f"{description['format']} {description.get('version', '')}".strip()
    rows = [
        (
            section["type"],
            section.get("name", ""),
            f"{section['bytes']:,}",
            ", ".join(f"{key} {value}" for key, value in section.get("items", {}).items()),
        )
        for section in description.get("sections", ())
    ]
    yield TextTable([("section", "name", "bytes", ""), *rows] if rows else [])
    metadata = description["metadata"].items()
    yield TextTable(
        [(key, json.dumps(value)[:_WIDTH]) for key, value in metadata] or [("no metadata",)]
    )
    yield ""


def _list_inspections(
    inspections: Mapping[str, Inspection], *, storage: bool
) -> Iterator[str | TextTable]:
    for number, (name, inspection) in enumerate(inspections.items()):
        yield from [""] * (number > 0) + [f"{name}:"] * bool(name)
        yield from _describe_model(inspection)
        if storage:
            yield from ["", *_list_storage(inspection.storage)]


def _list_storage(storage: Sequence[StorageInfo]) -> list[str | TextTable]:
    """Return a line for each quantized tensor, and the reasons."""
    if not storage:
        return ["no tensor is quantized"]
    reasons = {why: str(i + 1) for i, why in enumerate(dict.fromkeys(e.why for e in storage))}
    head = ("tensor", "operator", "TFLite", "ONNX", "read and written", "why")
    rows = [(e.tensor, e.operator, e.tflite, e.onnx, e.read, reasons[e.why]) for e in storage]
    return [TextTable([head, *rows]), "", TextTable([(i, why) for why, i in reasons.items()])]


def _describe_model(result: Inspection) -> Iterator[str | TextTable]:
    if result.description:
        yield result.description
    yield f"{result.bytes:,} bytes, {result.scheme}"
    for signature in result.signatures:
        names = ", ".join(signature.inputs), ", ".join(signature.outputs)
        yield f"signature {signature.key}({names[0]}) -> {names[1]}"
        carried = [name for name in signature.inputs if name in signature.outputs]
        if carried:
            yield f"  carries {', '.join(carried)}"
    for graph in result.subgraphs:
        yield ""
        yield from _describe_subgraph(graph)
    if result.axes:
        yield ""
        rows = [
            (axis.input, str(axis.axis), f"no: {axis.problem}" if axis.problem else "yes")
            for axis in result.axes
        ]
        yield TextTable([("input", "axis", "can be dynamic"), *rows])
        yield ""
        reason = result.batch_problem
        yield f"batch of independent samples: {f'no: {reason}' if reason else 'yes, by --batch'}"
    yield ""
    if result.buffers:
        yield f"metadata: {', '.join(result.buffers)}"
    yield from _list_metadata(result.metadata)
    yield result.problem or f"can be converted, to opset {result.opset}"


def _describe_subgraph(graph: SubgraphInfo) -> Iterator[str | TextTable]:
    operators = sum(info.count for info in graph.operators)
    size = f"{count(operators, 'operator')}, {count(graph.tensors, 'tensor')}"
    yield f"sub-graph {graph.name}: {size}"
    endpoints = [("input", t) for t in graph.inputs] + [("output", t) for t in graph.outputs]
    yield TextTable(
        [_describe_endpoint(kind, t) for kind, t in endpoints] or [("no inputs or outputs",)]
    )
    rows = [
        (
            info.code,
            f"{info.count:,}",
            f"{info.bytes:,}",
            f"no: {'; '.join(info.problems)}" if info.problems else f"opset {info.opset or '?'}",
        )
        for info in graph.operators
    ]
    yield TextTable([("operator", "count", "bytes", "converts"), *rows])


def _describe_endpoint(kind: str, tensor: TensorInfo) -> tuple[str, ...]:
    sizes = ["?" if size < 0 else str(size) for size in tensor.shape]
    shape = f"[{', '.join(sizes if tensor.has_rank else ['...'])}]"
    return kind, tensor.name, f"{tensor.dtype}{shape}", tensor.quantization


def _list_metadata(metadata: Mapping[str, Any]) -> Iterator[str | TextTable]:
    """Yield the metadata of the model, of its inputs and of its outputs."""
    words = ("name", "version", "author", "license", "description")
    rows = [(word, " ".join(str(metadata[word]).split())) for word in words if word in metadata]
    for end in ("input", "output"):
        rows += [(end, _format_tensor_metadata(note)) for note in metadata.get(f"{end}s", ())]
    yield TextTable(rows)


def _format_tensor_metadata(note: Mapping[str, Any]) -> str:
    parts = [str(note[word]) for word in ("name", "content", "color_space") if word in note]
    for word in ("mean", "std", "minimum", "maximum", "threshold"):
        if word in note:
            numbers = note[word] if isinstance(note[word], (list, tuple)) else [note[word]]
            parts.append(f"{word} {' '.join(f'{number:.6g}' for number in numbers)}")
    for file in note.get("files", ()):
        labels = f" with {count(len(file['labels']), 'label')}" if "labels" in file else ""
        parts.append(f"{file['name']}{labels}")
    return ", ".join(parts)
