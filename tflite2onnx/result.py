"""The result of a conversion, and the metadata of the ONNX model."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import onnx

from tflite2onnx.builder.builder import Port, walk_nodes
from tflite2onnx.emit import Emitted, find_shared_caches
from tflite2onnx.interface import CACHES, INPUTS, OUTPUTS, Endpoint, State, make_endpoint
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.stateful import STATES
from tflite2onnx.utils.console import count
from tflite2onnx.version import VERSION
from tflite2onnx.writer import Skeleton, assemble, write

if TYPE_CHECKING:
    from tflite2onnx.float16 import Float32Node

_WIDTH = 200  # the largest number of characters of a representation

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a conversion: the ONNX model, its interface, and the cost of its layout.

    `states` are further inputs and outputs, which pass states from one run to the next. `size` is
    the size of the model in bytes, with weights. `float32_nodes` are the nodes that compute in
    float32 in a model of half precision. `parts` are "preprocessing", "network" and
    "postprocessing" as separate models, if the model takes pictures or returns boxes.
    """

    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    opset: int
    nodes: int
    size: int
    skeleton: Skeleton
    states: tuple[State, ...] = ()
    float32_nodes: tuple[Float32Node, ...] = ()
    parts: Mapping[str, Result] = field(default_factory=dict)

    @property
    def transposes(self) -> int:
        """The number of Transpose nodes."""
        return self._layout_cost[0]

    @property
    def bytes_moved(self) -> int:
        """The bytes that the Transpose nodes write in one run."""
        return self._layout_cost[1]

    @cached_property
    def _layout_cost(self) -> tuple[int, int]:
        # The encoded nodes are read again, which a caller who asks for the model need not wait for.
        return self.skeleton.transposes

    @property
    def endpoints(self) -> list[tuple[str, Endpoint]]:
        """The inputs, the outputs and the inputs of states, each with its kind."""
        endpoints = [("input", e) for e in self.inputs] + [("output", e) for e in self.outputs]
        return endpoints + [("state", state.input) for state in self.states]

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The ONNX model with all its weights, as a protobuf in memory."""
        return self.skeleton.assemble_model()

    def __repr__(self) -> str:
        endpoints = (
            ", ".join(f"{e.name} {e.dtype}[{','.join(map(str, e.sizes))}]" for e in group)
            for group in (self.inputs, self.outputs)
        )
        size = f"{count(self.nodes, 'node')}, {self.size:,} bytes, opset {self.opset}"
        return shorten(f"<Result {' -> '.join(endpoints)}: {size}>", _WIDTH, placeholder=" ...>")

    def _repr_html_(self) -> str:
        """Return a table of inputs and outputs as HTML, for notebooks."""
        from html import escape  # noqa: PLC0415 - slow to import

        rows = [
            (kind, e.name, e.dtype, f"{[*e.tflite_sizes]} {e.layout[0]}",
             f"{[*e.sizes]} {e.layout[1]}")
            for kind, e in self.endpoints
        ]  # fmt: skip
        cells = [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows]
        table = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        head = "".join(f"<th>{name}</th>" for name in ("", "name", "type", "TFLite", "ONNX"))
        moved = f"{self.bytes_moved:,} bytes moved by {count(self.transposes, 'Transpose')}"
        size = f"{count(self.nodes, 'node')}, {moved}, {self.size:,} bytes, opset {self.opset}"
        return f"<table><tr>{head}</tr>{table}</table><p>{size}</p>"

    def to_dict(self) -> dict[str, Any]:
        """Return the interface and the cost of its layout as numbers, strings, lists and dicts."""
        return {
            "opset": self.opset,
            "nodes": self.nodes,
            "transposes": self.transposes,
            "bytes_moved": self.bytes_moved,
            "bytes": self.size,
            "inputs": [e.to_dict() for e in self.inputs],
            "outputs": [e.to_dict() for e in self.outputs],
            "states": [state.to_dict() for state in self.states],
            "float32_nodes": [node._asdict() for node in self.float32_nodes],
        }

    def drop_details(self) -> Result:
        """Return the result without what the nodes compute, which verification reads."""
        skeleton = replace(self.skeleton, tensors=(), plan=StoragePlan(), endpoints=())
        return replace(self, skeleton=skeleton)

    def save(self, path: str | os.PathLike[str], external_data: int | None = None) -> int:
        """Write the model to a file, which appears only when it is complete.

        Args:
            path: the ONNX file; a second file for weights has the same name with `.data` added.
            external_data: the least size in bytes of a weight that goes to the second file. None
                writes a second file, with all weights, only for a model of more than 2 GB.

        Returns:
            The number of bytes.

        Raises:
            OutputError: a file cannot be written.
        """
        written = write(self.skeleton, path, external_data)
        _logger.debug("wrote %s: %d bytes", os.fspath(path), written)
        return written


def make_result(
    emitted: Emitted, name: str, metadata: Mapping[str, object] | None,
    float32_nodes: tuple[Float32Node, ...] = (), *, required_states: bool = False,
) -> Result:  # fmt: skip
    """Assemble the ONNX model of a graph; `metadata` is added to the metadata of the interface.

    With None the model has no metadata: onnx.compose merges only models of equal metadata. With
    `required_states` the initial values of states are in the metadata, and not in the graph.
    """
    inputs, state_inputs = _split_endpoints(emitted.inputs, len(emitted.initial))
    outputs, state_outputs = _split_endpoints(emitted.outputs, len(emitted.initial))
    states = tuple(map(State, state_inputs, state_outputs, emitted.initial, emitted.variables))
    properties = {
        key: json.dumps([e.to_dict() for e in endpoints])
        for key, endpoints in ((INPUTS, inputs), (OUTPUTS, outputs))
    }
    if states:
        described = [state.to_dict(initial=required_states) for state in states]
        properties[STATES] = json.dumps(described)
    if shared := find_shared_caches(emitted):
        properties[CACHES] = json.dumps(shared)
    extra = (metadata or {}).items()
    properties |= {f"tflite2onnx.{key}": json.dumps(v) for key, v in extra if v}
    properties = {} if metadata is None else properties
    skeleton = assemble(name, emitted, properties, VERSION, required_states=required_states)
    return Result(
        inputs=inputs,
        outputs=outputs,
        opset=emitted.opset,
        nodes=sum(1 for _ in walk_nodes(emitted.nodes)),
        size=skeleton.size,
        skeleton=skeleton,
        states=states,
        float32_nodes=float32_nodes,
    )


def _split_endpoints(
    ports: Sequence[Port], states: int
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return the inputs or outputs without states, and the states."""
    endpoints = tuple(make_endpoint(p.tensor, p.order, p.name, p.dtype, p.letters) for p in ports)
    return endpoints[: len(endpoints) - states], endpoints[len(endpoints) - states :]
