"""What comes out of a conversion, and what the ONNX model says of itself in its metadata."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from tflite2onnx.builder.builder import Port, every_node
from tflite2onnx.emit import Emitted
from tflite2onnx.interface import INPUTS, OUTPUTS, Endpoint, State, endpoint
from tflite2onnx.stateful import STATES
from tflite2onnx.version import VERSION
from tflite2onnx.writer import Skeleton, assemble, write

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Result:
    """What came out: the model, its interface, and what the plan cost.

    `states` are the further inputs and outputs of a model that remembers something from one run to
    the next. `transposes` counts the Transpose nodes and `bytes_moved` what they write in one run;
    `size` is the bytes of the model, weights included.
    """

    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    opset: int
    nodes: int
    transposes: int
    bytes_moved: int
    size: int
    skeleton: Skeleton
    states: tuple[State, ...] = ()

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The ONNX model with all its weights."""
        return self.skeleton.model()

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the model to a file, which appears when it is whole; return its bytes.

        Above 2 GB the weights go to a second file beside it, whose name ends in .onnx.data.

        Raises:
            OutputError: the place cannot be written to.
        """
        written = write(self.skeleton, path)
        _logger.debug("wrote %s: %d bytes", os.fspath(path), written)
        return written


def result_of(emitted: Emitted, name: str, more: Mapping[str, object]) -> Result:
    """Assemble the ONNX model of a graph of that name; its metadata say `more` as well."""
    inputs, taken = _split_endpoints(emitted.inputs, len(emitted.initial))
    outputs, given = _split_endpoints(emitted.outputs, len(emitted.initial))
    states = tuple(map(State, taken, given, emitted.initial, emitted.variables))
    properties = _properties(inputs, outputs, states)
    properties |= {f"tflite2onnx.{key}": json.dumps(value) for key, value in more.items() if value}
    skeleton = assemble(name, emitted, properties, VERSION)
    count, moved = skeleton.transposes
    nodes = sum(1 for _ in every_node(emitted.nodes))
    return Result(
        inputs, outputs, emitted.opset, nodes, count, moved, skeleton.size, skeleton, states
    )


def _split_endpoints(
    ports: Sequence[Port], states: int
) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return the model's own inputs or outputs, and those that are states."""
    ends = tuple(endpoint(p.tensor, p.order, p.name, p.dtype) for p in ports)
    return ends[: len(ends) - states], ends[len(ends) - states :]


def _properties(
    inputs: Sequence[Endpoint], outputs: Sequence[Endpoint], states: Sequence[State]
) -> dict[str, str]:
    """Return what the metadata of the ONNX model say of its interface."""
    props = {
        INPUTS: json.dumps([end.to_dict() for end in inputs]),
        OUTPUTS: json.dumps([end.to_dict() for end in outputs]),
    }
    if states:
        said = [
            state.input.to_dict() | {"output": state.output.name, "variable": state.variable}
            for state in states
        ]
        props[STATES] = json.dumps(said)
    return props
