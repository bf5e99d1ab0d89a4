"""The converted network in a model that takes pictures, for a comparison with the TFLite file."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import onnx

from tflite2onnx.builder.messages import list_reads
from tflite2onnx.builder.nodes import require_onnx_type
from tflite2onnx.interface import INPUTS, OUTPUTS, Endpoint
from tflite2onnx.pictures.settings import NETWORK
from tflite2onnx.result import Result
from tflite2onnx.stateful import STATES
from tflite2onnx.tensor import DType

_KEY, _SIGNATURES = f"tflite2onnx.{NETWORK}", "tflite2onnx.signatures"
_Model = Result | onnx.ModelProto | str | bytes | os.PathLike[str]


def find_network(model: _Model) -> Any:  # noqa: ANN401 - the same type, or an onnx.ModelProto
    """Return the network without preprocessing and postprocessing, or a model that has neither.

    A file must be readable.
    """
    if isinstance(model, Result):
        return model.parts.get(NETWORK, model)
    if not isinstance(model, onnx.ModelProto):
        if not _has_endpoints(model):
            return model
        model = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model)
    properties = {entry.key: entry.value for entry in model.metadata_props}
    return _cut_network(model, properties) if _KEY in properties else model


def _has_endpoints(file: str | bytes | os.PathLike[str]) -> bool:
    """Return whether a file may have a preprocessing or postprocessing; no weights are read."""
    if isinstance(file, bytes):
        return _KEY.encode() in file
    with Path(file).open("rb") as opened:
        if os.fstat(opened.fileno()).st_size == 0:
            return False
        with mmap(opened.fileno(), 0, access=ACCESS_READ) as mapped:
            return mapped.find(_KEY.encode()) >= 0


def _cut_network(model: onnx.ModelProto, properties: dict[str, str]) -> onnx.ModelProto:
    """Return the part of a model from the network's inputs to its outputs."""
    endpoints = json.loads(properties.pop(_KEY))
    labels = {e["value"]: e["name"] for key in ("inputs", "outputs") for e in endpoints[key]}
    states = json.loads(properties.get(STATES, "[]"))
    graph = model.graph
    infos = {i.name: i for i in (*graph.input, *graph.output)}
    infos |= {e["value"]: _describe(e) for key in ("inputs", "outputs") for e in endpoints[key]}
    inputs = [e["value"] for e in endpoints["inputs"]] + [state["name"] for state in states]
    outputs = [e["value"] for e in endpoints["outputs"]] + [state["output"] for state in states]
    nodes = _list_needed(graph.node, inputs, outputs)
    names_read = {name for node in nodes for name in list_reads(node)}
    result = onnx.ModelProto()
    result.CopyFrom(model)
    part = result.graph
    for field, items in (
        ("node", nodes),
        ("input", [infos[name] for name in inputs]),
        ("output", [infos[name] for name in outputs]),
        ("initializer", [state for state in graph.initializer if state.name in names_read]),
        ("value_info", [i for i in graph.value_info if i.name not in {*inputs, *outputs}]),
    ):
        part.ClearField(field)
        getattr(part, field).extend(items)
    _rename_values(part, labels)
    properties |= {
        INPUTS: json.dumps(endpoints["inputs"]),
        OUTPUTS: json.dumps(endpoints["outputs"]),
    }
    if "signatures" in endpoints:
        properties[_SIGNATURES] = json.dumps(endpoints["signatures"])
    onnx.helper.set_model_props(result, properties)
    return result


def _describe(endpoint: Mapping[str, Any]) -> onnx.ValueInfoProto:
    """Return the type and the shape of an input or output of the network."""
    facts = Endpoint.from_dict(endpoint)
    (dtype,) = (kind for kind in DType if kind.label == facts.dtype)
    return onnx.helper.make_tensor_value_info(
        endpoint["value"], require_onnx_type(dtype), facts.sizes
    )


def _list_needed(
    nodes: Sequence[onnx.NodeProto], inputs: Iterable[str], outputs: Iterable[str]
) -> list[onnx.NodeProto]:
    available, needed, kept_nodes = {*inputs}, {*outputs}, []
    for node in reversed(nodes):
        if not (needed - available).isdisjoint(node.output):
            kept_nodes.append(node)
            needed.update(list_reads(node))
    return kept_nodes[::-1]


def _rename_values(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(name, name) for name in values]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _rename_values(attribute.g, names)
    for info in (*graph.input, *graph.output):
        info.name = names.get(info.name, info.name)
