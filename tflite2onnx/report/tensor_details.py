"""Details of the tensors that operators compute: attributes, operands, layouts and storage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tflite2onnx.graph import Graph, Op
from tflite2onnx.interface import Endpoint, make_endpoint
from tflite2onnx.report.html import format_sizes, shorten_value
from tflite2onnx.storage_table import StorageInfo
from tflite2onnx.tensor import Tensor
from tflite2onnx.writer import Skeleton


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
            yield TensorDetails(op.index, _name_operator(op), tensor.name, found)


def _name_operator(op: Op) -> str:
    return op.code or "custom"


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
