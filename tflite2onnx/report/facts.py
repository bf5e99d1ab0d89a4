"""The data of a report: conversion, graph, and optimized graph of ONNX Runtime."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from logging import DEBUG, LogRecord
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from tflite2onnx.builder.messages import walk_graphs
from tflite2onnx.errors import ConversionError
from tflite2onnx.graph import Graph
from tflite2onnx.inspection import find_scheme
from tflite2onnx.interface import Endpoint, make_endpoint
from tflite2onnx.reader.model import read_model
from tflite2onnx.report.graph_lanes import Strip, build_strip
from tflite2onnx.report.html import format_sizes, shorten_value
from tflite2onnx.result import Result
from tflite2onnx.storage_table import StorageInfo
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.console import handle_records
from tflite2onnx.verification import Report
from tflite2onnx.verification.entry_point import extract_entry_point
from tflite2onnx.verification.onnx_model import (
    ConvertedModel,
    OpenedModel,
    convert_again,
    locate_tensors,
    open_model,
)
from tflite2onnx.verification.runtimes import ModelFile, as_verify_error, import_runtime
from tflite2onnx.writer import Skeleton

_OF_RULES = ("tflite2onnx.builder.", "tflite2onnx.passes.", "tflite2onnx.targets.")


@dataclass(frozen=True)
class PageFacts:
    """The data of a page.

    `nodes` counts nested graphs too, and `transposes` leaves out Transposes of constants, as
    `Result` does. `kinds` counts nodes in the same way by operator type, in the file and after the
    optimizations of ONNX Runtime.
    `tflite_bytes` and `onnx_bytes` are file sizes. `storage` says how quantized tensors are stored.
    `tensors` are those that operators compute. `file` is the ONNX file, None if it is not
    known. `changes` says which rules and forms apply, and `losses` why others do not.
    """

    name: str
    scheme: str
    tflite_bytes: int
    onnx_bytes: int
    operators: int
    opset: int
    nodes: int
    transposes: int
    bytes_moved: int
    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    report: Report
    strip: Strip
    kinds: Mapping[str, tuple[int, int]]
    storage: tuple[StorageInfo, ...] = ()
    tensors: tuple[TensorDetails, ...] = ()
    file: str | os.PathLike[str] | None = None
    changes: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()


def collect_facts(
    model: ModelFile,
    converted: ConvertedModel,
    report: Report,
    file: str | os.PathLike[str] | None = None,
) -> PageFacts:
    """Collect the data of a verified conversion; `file` is where a `Result` is saved.

    Raises:
        VerifyError: a runtime cannot run its model.
    """
    opened = open_model(converted)
    shapes = [e.tflite_shape for e in opened.inputs]
    source = read_model(extract_entry_point(model, opened.signature, opened.part, shapes))
    skeleton = locate_tensors(model, converted, opened)
    proto = skeleton.proto
    transposes, moved = skeleton.transposes
    (opset,) = [entry.version for entry in proto.opset_import if not entry.domain] or [0]
    data = skeleton.serialize()
    name = "model" if isinstance(model, bytes) else Path(os.fspath(model)).name
    before, after = _count_node_types(proto), _count_optimized_nodes(data)
    nodes = before.total()
    before["Transpose"] = transposes
    return PageFacts(
        name,
        find_scheme(source.graphs),
        len(model) if isinstance(model, bytes) else Path(os.fspath(model)).stat().st_size,
        converted.size if isinstance(converted, Result) else len(data),
        len(source.graphs[0].ops),
        opset,
        nodes,
        transposes,
        moved,
        tuple(opened.inputs),
        tuple(opened.outputs),
        report,
        build_strip(proto, skeleton.tensors, [header.name for header, _ in skeleton.weights]),
        {kind: (before[kind], after[kind]) for kind in sorted(before | after)},
        tuple(skeleton.storage),
        tuple(describe_tensors(source.graphs[0], skeleton)),
        converted if isinstance(converted, (str, os.PathLike)) else file,
        *_collect_lines(model, opened),
    )


def _collect_lines(
    model: ModelFile, opened: OpenedModel
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what rules and forms change, and why others do not apply, each line once."""
    changes: dict[str, None] = {}
    losses: dict[str, None] = {}

    def keep(record: LogRecord) -> None:
        if record.levelno == DEBUG and record.name.startswith(_OF_RULES):
            lines = losses if record.name.endswith(".losses") else changes
            lines[record.getMessage()] = None

    with handle_records(keep) as logger:
        propagates, logger.propagate = logger.propagate, False
        logger.setLevel(DEBUG)
        try:
            convert_again(model, opened)
        except ConversionError:  # another version has made the file
            return (), ()
        finally:
            logger.propagate = propagates
    return (*changes,), (*losses,)


def _count_node_types(proto: onnx.ModelProto) -> Counter[str]:
    """Count the nodes of a model, in nested graphs too, by type."""
    return Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        for node in chain.from_iterable(graph.node for graph in walk_graphs(proto.graph))
    )


def _count_optimized_nodes(data: bytes) -> Counter[str]:
    """Count the nodes that ONNX Runtime runs after its optimizations, by type."""
    runtime = import_runtime("onnxruntime")
    with TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        path = f"{directory}/optimized.onnx"
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = path
        with as_verify_error("ONNX Runtime"):
            runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            return _count_node_types(onnx.load(path, load_external_data=False))


@dataclass(frozen=True)
class TensorDetails:
    """A tensor, the operator that computes it, and details as lines of text by their headings."""

    index: int
    operator: str
    name: str
    details: Mapping[str, str]


def describe_tensors(graph: Graph, skeleton: Skeleton) -> Iterator[TensorDetails]:
    """Yield the tensors that the operators of a graph compute, in order of execution."""
    endpoints = {
        port.tensor.name: make_endpoint(port.tensor, port.order, "", port.dtype, port.letters)
        for port in reversed(skeleton.tensors)
    }
    storage = {info.tensor: info for info in reversed(skeleton.storage)}
    for op in graph.ops:
        attributes = "\n".join(
            f"{name}: {shorten_value(value)}" for name, value in op.options.items()
        )
        operands = "\n".join(_describe_operand(tensor, storage) for tensor in op.present)
        for tensor in op.outputs:
            details = {
                **_describe_layout(endpoints.get(tensor.name)),
                "Attributes in TFLite": attributes,
                "Storage": _describe_storage(storage.get(tensor.name)),
                "Operands": operands,
            }
            found = {heading: text for heading, text in details.items() if text}
            yield TensorDetails(op.index, op.code or "custom", tensor.name, found)


def _describe_layout(endpoint: Endpoint | None) -> dict[str, str]:
    if endpoint is None:
        return {}
    shapes = (format_sizes(endpoint.tflite_sizes), format_sizes(endpoint.sizes))
    named = zip(("Layout in TFLite", "Layout in ONNX"), shapes, endpoint.layout, strict=True)
    return {heading: f"{shape} {letters}" for heading, shape, letters in named}


def _describe_operand(tensor: Tensor, storage: Mapping[str, StorageInfo]) -> str:
    words = f"{tensor.name}: {tensor.dtype.label} {format_sizes(tensor.shape)}"
    stored = _describe_storage(storage.get(tensor.name))
    return f"{words}; {stored}" if stored else words


def _describe_storage(info: StorageInfo | None) -> str:
    if info is None:
        return ""
    return f"{info.tflite} in TFLite, {info.onnx} in ONNX, read as {info.read}: {info.why}"
