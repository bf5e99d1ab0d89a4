"""Nodes to an ONNX file: names, types, and weights streamed from where they lie.

Weights are never gathered in memory. A model without them is a small protobuf; since the fields
of a protobuf message may come in any order, each initializer can be appended to it as header and
bytes, which are copied from the memory-mapped TFLite file on the way. Above 2 GB, where a
protobuf ends, the bytes go to a file of their own beside the model.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

from tflite2onnx.builder import Node, Port, Value, onnx_type
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OutputError
from tflite2onnx.tensor import Array

PRODUCER = "tflite2onnx"
# Constants up to this size stand in the skeleton itself, where shape inference can read them.
_SMALL = 1024
# The largest protobuf, less room for the skeleton.
_LARGEST_FILE = 2**31 - 2**20
_LARGEST_GAP = 64
_INITIALIZER, _RAW_DATA, _GRAPH = 5, 9, 7  # field numbers in onnx.proto


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A model with all but its large weights, and these as (header, elements)."""

    proto: onnx.ModelProto
    weights: tuple[tuple[TensorProto, Array], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the large weights."""
        return sum(data.nbytes for _, data in self.weights)

    @property
    def size(self) -> int:
        """Bytes of the whole model."""
        return int(self.proto.ByteSize()) + self.nbytes

    @property
    def transposes(self) -> tuple[int, int]:
        """The number of Transpose nodes, and the bytes that they write in one run."""
        graph = self.proto.graph
        infos = {i.name: i.type.tensor_type for i in (*graph.value_info, *graph.output)}
        moved = [infos.get(n.output[0]) for n in graph.node if n.op_type == "Transpose"]
        return len(moved), sum(_nbytes(t) for t in moved if t is not None)

    def model(self) -> onnx.ModelProto:
        """Return the whole model, weights copied in."""
        model = onnx.ModelProto()
        model.CopyFrom(self.proto)
        for header, data in self.weights:
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(header)
            tensor.raw_data = data.tobytes()
        return model


def assemble(name: str, emitted: Emitted, properties: Mapping[str, str], version: str) -> Skeleton:
    """Build the model: its tensors keep their names, its constants are told from its weights."""
    names = _Names(emitted)
    graph = onnx.GraphProto(name=name)
    graph.node.extend(_node(node, names) for node in emitted.nodes)
    constants = dict.fromkeys(
        v for n in emitted.nodes for v in n.inputs if v is not None and v.data is not None
    )
    headers = [(_header(v, names.of(v)), v.data) for v in constants if v.data is not None]
    graph.input.extend(_info(p) for p in emitted.inputs)
    graph.output.extend(_info(p) for p in emitted.outputs)
    for header, data in headers:
        if data.nbytes <= _SMALL:
            header.raw_data = data.tobytes()
            graph.initializer.append(header)
    weights = tuple((h, d) for h, d in headers if d.nbytes > _SMALL)
    opsets = [helper.make_opsetid("", emitted.opset)]
    model = helper.make_model(
        graph, producer_name=PRODUCER, producer_version=version,
        opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets),
    )  # fmt: skip
    helper.set_model_props(model, dict(properties))
    own = {p.name for p in (*emitted.inputs, *emitted.outputs)}
    known = [p for p in emitted.tensors if names.of(p.value) == p.name and p.name not in own]
    _infer(model, [h for h, _ in weights], known)
    return Skeleton(model, weights)


def _nbytes(kind: onnx.TypeProto.Tensor) -> int:
    elements = math.prod(d.dim_value for d in kind.shape.dim)
    return int(elements * helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize)


def _node(node: Node, names: _Names) -> onnx.NodeProto:
    outputs = [names.of(v, node) for v in node.outputs]
    inputs = ["" if v is None else names.of(v) for v in node.inputs]
    return helper.make_node(node.op_type, inputs, outputs, name=outputs[0], **node.attributes)


def _header(value: Value, name: str) -> TensorProto:
    data, dtype = value.data, value.dtype
    if data is None or dtype is None:
        message = f"{name} is no constant"
        raise TypeError(message)
    return TensorProto(name=name, dims=data.shape, data_type=onnx_type(dtype))


def _info(port: Port) -> onnx.ValueInfoProto:
    shape = [port.tensor.shape[i] for i in port.order]
    return helper.make_tensor_value_info(port.name, onnx_type(port.dtype), shape)


def _infer(model: onnx.ModelProto, weights: Sequence[TensorProto], known: Sequence[Port]) -> None:
    """Fill in value_info: the tensors' own shapes, and what inference adds between them.

    Large weights are stood in for by their type and shape alone.
    """
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    stand_ins = {h.name for h in weights}
    for h in weights:
        probe.graph.value_info.append(helper.make_tensor_value_info(h.name, h.data_type, h.dims))
    probe.graph.value_info.extend(_info(p) for p in known)
    inferred = shape_inference.infer_shapes(probe)
    model.graph.value_info.extend(
        info for info in inferred.graph.value_info if info.name not in stand_ins
    )


class _Names:
    """A unique name for each value: inputs and outputs first, tensors next, the rest made up."""

    def __init__(self, emitted: Emitted) -> None:
        self._names: dict[Value, str] = {}
        self._used: dict[str, int] = {}
        ends = (*emitted.inputs, *emitted.outputs)
        self._taken = {port.name for port in ends}
        for port in ends:
            self._names.setdefault(port.value, port.name)
        for port in emitted.tensors:
            if port.value not in self._names:
                self._names[port.value] = self._free(port.name)

    def of(self, value: Value, node: Node | None = None) -> str:
        """Return a value's name; one without is named after its node, or is a constant."""
        if value not in self._names:
            wish = value.name if node is None else f"{node.scope}/{node.op_type}"
            self._names[value] = self._free(wish)
        return self._names[value]

    def _free(self, wish: str) -> str:
        name = wish
        while name in self._taken:
            self._used[wish] = self._used.get(wish, 0) + 1
            name = f"{wish}_{self._used[wish]}"
        self._taken.add(name)
        return name


# Files


def write(skeleton: Skeleton, path: str | os.PathLike[str]) -> int:
    """Write the model; it appears under its name only when it is whole. Return its bytes.

    Raises:
        OutputError: the place cannot be written to.
    """
    target = Path(path)
    try:
        if skeleton.size < _LARGEST_FILE:
            with _replacing(target) as file:
                _stream(skeleton, file)
            return target.stat().st_size
        data = target.with_name(target.name + ".data")
        with _replacing(data) as file, _replacing(target) as small:
            small.write(_external(skeleton, data.name, file).SerializeToString(deterministic=True))
        return target.stat().st_size + data.stat().st_size
    except OSError as error:
        message = f"cannot write {target}: {error.strerror or error}"
        raise OutputError(message) from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when all went well."""
    if path.is_dir():
        raise IsADirectoryError(21, "it is a directory")
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            yield file  # type: ignore[misc]  # a wrapper with all of BinaryIO's methods
            file.flush()
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(file.name, 0o666 & ~umask)  # noqa: PTH101 - the name is a str
            os.replace(file.name, path)  # noqa: PTH105
        except BaseException:
            os.unlink(file.name)  # noqa: PTH108
            raise


def _stream(skeleton: Skeleton, file: BinaryIO) -> None:
    rest = onnx.ModelProto()
    rest.CopyFrom(skeleton.proto)
    graph = rest.graph.SerializeToString(deterministic=True)
    rest.ClearField("graph")
    parts = []
    for header, data in skeleton.weights:
        head = header.SerializeToString(deterministic=True)
        head += _tag(_RAW_DATA) + _varint(data.nbytes)
        parts.append((_tag(_INITIALIZER) + _varint(len(head) + data.nbytes) + head, data))
    size = len(graph) + sum(len(head) + data.nbytes for head, data in parts)
    file.write(rest.SerializeToString(deterministic=True))
    file.write(_tag(_GRAPH) + _varint(size) + graph)
    for head, data in parts:
        file.write(head)
        file.write(_bytes(data))


def _external(skeleton: Skeleton, location: str, file: BinaryIO) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(skeleton.proto)
    for header, data in skeleton.weights:
        tensor = model.graph.initializer.add()
        tensor.CopyFrom(header)
        tensor.data_location = TensorProto.EXTERNAL
        file.write(b"\0" * (-file.tell() % _LARGEST_GAP))
        entries = {"location": location, "offset": file.tell(), "length": data.nbytes}
        for key, entry in entries.items():
            tensor.external_data.add(key=key, value=str(entry))
        file.write(_bytes(data))
    return model


def _bytes(data: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))


def _tag(field: int) -> bytes:
    return bytes([field << 3 | 2])  # length-delimited


def _varint(number: int) -> bytes:
    groups = []
    while number > 0x7F:  # noqa: PLR2004 - seven bits to a byte
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
