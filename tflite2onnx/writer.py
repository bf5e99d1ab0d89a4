"""Nodes to an ONNX file: names, types, and weights that are streamed from the TFLite file.

Weights are never gathered in memory. A model without weights is a small protobuf. The fields of a
protobuf message may come in any order, so each initializer is appended as a header and its bytes,
which are copied from the memory-mapped TFLite file. A protobuf cannot be larger than 2 GB; the
weights of a larger model go to a second file beside the model. On request, the
weights of any model go there, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, shape_inference

from tflite2onnx.builder.builder import WITH_GRAPHS, Body, Port, Value, find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node, Types, require_onnx_type
from tflite2onnx.builder.opsets import DOMAINS
from tflite2onnx.builder.value_names import ValueNames
from tflite2onnx.emit import Emitted
from tflite2onnx.quantization.table import StorageInfo, list_storage
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.reader.buffers import pack_subbyte
from tflite2onnx.tensor import Array, DType, Tensor
from tflite2onnx.utils.atomic_files import Create, replace_all_atomically, resolve_target
from tflite2onnx.utils.mapped_files import digest_elements, find_address, write_elements

PRODUCER = "tflite2onnx"
# bytes: a smaller constant is in the skeleton itself, where shape inference can read it.
_SMALL = 1024
WEIGHTS = "weights.data"  # the file of the weights that several models of a folder share
LARGEST_FILE = 2**31 - 1  # the largest number of bytes of a protobuf
_ALIGNMENT = 64  # bytes, for each weight in the second file
_INITIALIZER, _RAW_DATA, _GRAPH = 5, 9, 7  # the numbers of the fields in onnx.proto


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A model without its large weights, and the large weights as (header, elements).

    `tensors` are the tensors of the TFLite model that it computes, with the names of their values.
    `dynamic_sizes` has the file's value of each dynamic size, by name. `plan` is the storage of all
    operands, and `ends` are the tensors that are inputs and outputs of the model. `source` is the
    model, or its bytes, which take a tenth of the memory: those of its graph come second.
    """

    source: onnx.ModelProto | tuple[bytes, bytes]
    weights: tuple[tuple[TensorProto, Array], ...]
    tensors: tuple[Port, ...] = ()
    dynamic_sizes: Mapping[str, int] = field(default_factory=dict)
    plan: StoragePlan = field(default_factory=StoragePlan)
    ends: tuple[Tensor, ...] = ()

    @property
    def storage(self) -> list[StorageInfo]:
        """How each quantized tensor is stored, and why."""
        return list_storage(self.plan, self.ends)

    @property
    def proto(self) -> onnx.ModelProto:
        """The model without its large weights."""
        if isinstance(self.source, onnx.ModelProto):
            return self.source
        rest, graph = self.source
        model: onnx.ModelProto = onnx.ModelProto.FromString(rest)
        model.graph.MergeFromString(graph)
        return model

    def _copy_proto(self) -> onnx.ModelProto:
        """Return a copy of the model without its large weights."""
        if isinstance(self.source, tuple):
            return self.proto
        model = onnx.ModelProto()
        model.CopyFrom(self.source)
        return model

    @property
    def framed(self) -> tuple[bytes, tuple[tuple[bytes, Array], ...]]:
        """The model as one file: the start of the file, then (head, elements) of large weights."""
        rest, graph = (
            self.source if isinstance(self.source, tuple) else _take_bytes(self._copy_proto())
        )
        weights = tuple((_write_head(header, data), data) for header, data in self.weights)
        size = len(graph) + sum(len(head) + data.nbytes for head, data in weights)
        return rest + _encode_tag(_GRAPH) + _write_varint(size) + graph, weights

    @property
    def size(self) -> int:
        """Bytes of the model as one file."""
        start, weights = self.framed
        return len(start) + sum(len(head) + data.nbytes for head, data in weights)

    def serialize(self) -> bytes:
        """Return the model as one file."""
        start, weights = self.framed
        return b"".join(
            [start, *(part for head, data in weights for part in (head, _view_bytes(data)))]
        )

    @property
    def transposes(self) -> tuple[int, int]:
        """The number of Transpose nodes, and the bytes that they write in one run.

        Dynamic sizes count with their values in the file. Runtimes transpose constants at load.
        """
        count, size, main = 0, 0, self.proto.graph
        initializers = (*main.initializer, *(header for header, _ in self.weights))
        constants = {each.name for each in initializers} - {x.name for x in main.input}
        for graph in _walk_graphs(main):
            outputs = set()
            for node in graph.node:
                if constants.issuperset(node.input):
                    constants.update(node.output)
                elif node.op_type == "Transpose":
                    outputs.add(node.output[0])
            if outputs:
                infos = [i for i in (*graph.value_info, *graph.output) if i.name in outputs]
                count += len(outputs)
                size += sum(nbytes(info.type.tensor_type, self.dynamic_sizes) for info in infos)
        return count, size

    def assemble_model(
        self, external: Collection[str] = (), file: _WeightFile | None = None
    ) -> onnx.ModelProto:
        """Return the whole model with copies of the weights; external weights go to a file."""
        model = self._copy_proto()
        for header, data in self.weights:
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(header)
            if file is not None and header.name in external:
                tensor.data_location = TensorProto.EXTERNAL
                for key, entry in file.store(data).items():
                    tensor.external_data.add(key=key, value=str(entry))
            else:
                tensor.raw_data = data.tobytes()
        return model


def assemble(
    name: str,
    emitted: Emitted,
    properties: Mapping[str, str],
    version: str,
    *,
    required_states: bool = False,
) -> Skeleton:
    """Build the model; large constants become its weights.

    The initial value of a state is an initializer with the name of an input: ONNX Runtime uses it
    as the default of the input. With `required_states` there are no such initializers.
    """
    names = ValueNames((*emitted.inputs, *emitted.outputs), emitted.tensors, emitted.nodes)
    opsets = [helper.make_opsetid("", emitted.opset)]
    domains = sorted({node.domain for node in walk_nodes(emitted.nodes)} - {""})
    model = onnx.ModelProto(
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name=PRODUCER,
        producer_version=version,
        opset_import=[*opsets, *(helper.make_opsetid(d, DOMAINS.get(d, 1)) for d in domains)],
    )
    helper.set_model_props(model, dict(properties))
    graph = model.graph
    graph.name = name
    _add_nodes(graph, emitted.nodes, names, emitted.types)
    headers = _make_initializers(emitted, names, with_states=not required_states)
    graph.input.extend(map(_describe_port, emitted.inputs))
    graph.output.extend(map(_describe_port, emitted.outputs))
    for header, data in headers:
        if data.nbytes <= _SMALL:
            if data.nbytes:
                header.raw_data = data.tobytes()
            graph.initializer.append(header)
    weights = tuple((h, d) for h, d in headers if d.nbytes > _SMALL)
    _describe(model, emitted, names, [h for h, _ in weights])
    live = {value for node in emitted.nodes for value in node.outputs}
    live |= {port.value for port in emitted.inputs}
    tensors = tuple(names.rename(port) for port in emitted.tensors if port.value in live)
    ends = tuple(port.tensor for port in (*emitted.inputs, *emitted.outputs))
    return Skeleton(_take_bytes(model), weights, tensors, emitted.dynamic_sizes, emitted.plan, ends)


def _make_initializers(
    emitted: Emitted, names: ValueNames, *, with_states: bool
) -> list[tuple[TensorProto, Array]]:
    """Return the headers and elements of all constants, and of the initial values of states."""
    headers = [
        _make_initializer(names.find_name(v), v.dtype, v.data)
        for v in dict.fromkeys(v for node in walk_nodes(emitted.nodes) for v in node.present)
        if v.data is not None and v.dtype is not None
    ]
    if with_states:
        states = emitted.inputs[len(emitted.inputs) - len(emitted.initial) :]
        pairs = zip(states, emitted.initial, strict=True)
        headers += [_make_initializer(port.name, port.dtype, data) for port, data in pairs]
    return headers


def _make_initializer(name: str, dtype: DType, data: Array) -> tuple[TensorProto, Array]:
    """Return the header of a constant and its packed elements; strings are in the header."""
    header = TensorProto(name=name, dims=data.shape, data_type=require_onnx_type(dtype))
    if dtype is DType.STRING:
        header.string_data.extend(data.reshape(-1).tolist())
        return header, np.empty(0, np.uint8)
    return header, pack_subbyte(data, dtype)


def _walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    around = (node for node in graph.node if node.op_type in WITH_GRAPHS)
    for attribute in (a for node in around for a in node.attribute if a.HasField("g")):
        yield from _walk_graphs(attribute.g)


def list_reads(node: onnx.NodeProto) -> list[str]:
    """Return the values that a node reads, and the outer values that its nested graphs read."""
    names = [name for name in node.input if name]
    for graph in (graph for a in node.attribute for graph in (a.g, *a.graphs)):
        own = {entry.name for entry in (*graph.initializer, *graph.input)}
        own |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in list_reads(inner)]
        names += [name for name in (*read, *(o.name for o in graph.output)) if name not in own]
    return names


def nbytes(kind: onnx.TypeProto.Tensor, dynamic_sizes: Mapping[str, int]) -> int:
    """Return the bytes of a tensor; `dynamic_sizes` has the values of dynamic sizes, by name."""
    elements = math.prod(dynamic_sizes.get(d.dim_param, d.dim_value) for d in kind.shape.dim)
    return int(elements * helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize)


def _add_nodes(
    graph: onnx.GraphProto, nodes: Iterable[Node], names: ValueNames, types: Types, prefix: str = ""
) -> None:
    for index, node in enumerate(nodes):
        name = f"{prefix}{index}"
        outputs = [names.find_name(v) for v in node.outputs]
        inputs = ["" if v is None else names.find_name(v) for v in node.inputs]
        proto = graph.node.add(op_type=node.op_type, input=inputs, output=outputs, name=name)
        if node.domain:
            proto.domain = node.domain
        graphs = {
            key: _make_nested_graph(body, names, types, f"{name}/{key.removesuffix('_branch')}/")
            for key, body in find_bodies(node).items()
        }
        # make_node takes attributes as arguments, whose names would clash with those of a custom
        # operator.
        attributes = sorted({**node.attributes, **graphs}.items())
        proto.attribute.extend([helper.make_attribute(key, value) for key, value in attributes])


def _make_nested_graph(body: Body, names: ValueNames, types: Types, prefix: str) -> onnx.GraphProto:
    graph = onnx.GraphProto(name=body.name)
    _add_nodes(graph, body.nodes, names, types, prefix)
    graph.input.extend(_describe_values(body.inputs, names, types))
    graph.output.extend(
        next(
            _describe_values([value], names, types),
            onnx.ValueInfoProto(name=names.find_name(value)),
        )
        for value in body.outputs
    )
    inner = (v for node in body.nodes for v in node.outputs if v not in body.outputs)
    graph.value_info.extend(_describe_values(inner, names, types))
    return graph


def _describe_values(
    values: Iterable[Value], names: ValueNames, types: Types
) -> Iterator[onnx.ValueInfoProto]:
    """Yield descriptions of the values whose type and shape are known."""
    for value in values:
        if value in types:
            kind = _make_type(*types[value])
            yield onnx.ValueInfoProto(name=names.find_name(value), type=kind)


def _describe_port(port: Port) -> onnx.ValueInfoProto:
    sizes = tuple(port.tensor.sizes[i] for i in port.order)
    return onnx.ValueInfoProto(name=port.name, type=_make_type(port.dtype, sizes))


@lru_cache(maxsize=1024)
def _make_type(dtype: DType, sizes: tuple[int | str, ...]) -> onnx.TypeProto:
    """Return the type of a value; most values share their type with others."""
    return helper.make_tensor_type_proto(require_onnx_type(dtype), sizes)


def _describe(
    model: onnx.ModelProto, emitted: Emitted, names: ValueNames, weights: Sequence[TensorProto]
) -> None:
    """Fill in value_info, from the tensors first and by ONNX's shape inference for the rest."""
    outputs = {port.value for port in emitted.outputs}
    inner = [v for node in emitted.nodes for v in node.outputs if v not in outputs]
    infos = {info.name: info for info in _describe_values(inner, names, emitted.types)}
    if len(infos) < len(inner):
        infos |= _infer_types(model, weights, infos)
    model.graph.value_info.extend(
        infos[names.find_name(v)] for v in inner if names.find_name(v) in infos
    )


def _infer_types(
    model: onnx.ModelProto, weights: Sequence[TensorProto], known: Mapping[str, onnx.ValueInfoProto]
) -> dict[str, onnx.ValueInfoProto]:
    """Return the types and shapes that are not known.

    Inference is slow, so it gets only the nodes with unknown results, and no large weights.
    """
    whole, probe = model.graph, onnx.ModelProto(opset_import=model.opset_import)
    probe.ir_version = model.ir_version
    merged = {**known, **{info.name: info for info in whole.output}}
    probe.graph.node.extend(n for n in whole.node if not merged.keys() >= {*n.output})
    nodes = (node for graph in _walk_graphs(probe.graph) for node in graph.node)
    names = {name for node in nodes for name in (*node.input, *node.output)}
    probe.graph.input.extend(info for info in whole.input if info.name in names)
    probe.graph.initializer.extend(header for header in whole.initializer if header.name in names)
    for h in (h for h in weights if h.name in names):
        probe.graph.value_info.append(helper.make_tensor_value_info(h.name, h.data_type, h.dims))
    probe.graph.value_info.extend(info for name, info in merged.items() if name in names)
    infos = shape_inference.infer_shapes(probe).graph.value_info
    return {info.name: info for info in infos if info.name not in merged}


# Files


def write(
    skeleton: Skeleton, path: str | os.PathLike[str], external_data: int | None = None
) -> int:
    """Write the model; the file appears under its name only when it is complete.

    Weights of at least `external_data` bytes go to a second file; if None, all weights of a model
    that is too large for one file.

    Raises:
        OutputError: the file cannot be written.
    """
    with resolve_target(path) as target, replace_all_atomically() as create:
        return write_to(skeleton, target, create, external_data)


def list_external_weights(skeleton: Skeleton, external_data: int | None) -> frozenset[str]:
    """Return the names of the weights that go to a second file."""
    sizes = {header.name: data.nbytes for header, data in skeleton.weights}
    if external_data is not None:
        external = {name: size for name, size in sizes.items() if size >= external_data}
        if skeleton.size - sum(external.values()) <= LARGEST_FILE:
            return frozenset(external)
    return frozenset(sizes if skeleton.size > LARGEST_FILE else ())


def write_to(
    skeleton: Skeleton, target: Path, create: Create, external_data: int | None = None
) -> int:
    """Write the model to new files of `create`; return the number of bytes."""
    external = list_external_weights(skeleton, external_data)
    if not external:
        file = create(target)
        start, weights = skeleton.framed
        file.write(start)
        for head, data in weights:
            file.write(head)
            write_elements(file, data)
        return skeleton.size
    if target.exists() and not target.is_file() and not target.is_dir():
        raise OSError(
            "it must be a regular file, because the weights go to a second file beside it"
        )
    # The last file that is created is the first to get its final name, so the weights exist before
    # the model does.
    small, file = create(target), create(target.with_name(f"{target.name}.data"))
    model = skeleton.assemble_model(external, _WeightFile(f"{target.name}.data", file))
    size = small.write(model.SerializeToString(deterministic=True))
    return size + file.tell()


def write_folder(
    models: Mapping[Path, Skeleton], create: Create, external_data: int | None = None
) -> None:
    """Write several models to new files of `create`.

    If models of a folder have equal weights, all weights of at least `external_data` bytes go to
    one file, `weights.data`, and equal weights are stored once.
    """
    for folder in dict.fromkeys(path.parent for path in models):
        inside = {path: result for path, result in models.items() if path.parent == folder}
        keys = identify_weights(inside.values())
        stored = [keys[id(data)] for skeleton in inside.values() for _, data in skeleton.weights]
        if len(inside) == 1 or len({*stored}) == len(stored):
            for path, skeleton in inside.items():
                write_to(skeleton, path, create, external_data)
            continue
        files = [create(path) for path in inside]
        weights = _WeightFile(WEIGHTS, create(folder / WEIGHTS), keys)
        for file, skeleton in zip(files, inside.values(), strict=True):
            sizes = {header.name: data.nbytes for header, data in skeleton.weights}
            external = frozenset(n for n, size in sizes.items() if size >= (external_data or 0))
            model = skeleton.assemble_model(external, weights)
            file.write(model.SerializeToString(deterministic=True))


def identify_weights(models: Iterable[Skeleton]) -> dict[int, Hashable]:
    """Return a key for the elements of each weight, by its `id`; equal bytes have equal keys.

    Only weights of equal size at different addresses are read.
    """
    arrays = [data for skeleton in models for _, data in skeleton.weights]
    places: dict[int, dict[Hashable, list[Array]]] = {}
    for data in arrays:
        place = (find_address(data), data.shape, data.strides, data.dtype.str)
        places.setdefault(data.nbytes, {}).setdefault(place, []).append(data)
    keys: dict[int, Hashable] = {}
    for same_size in places.values():
        for address, sharing in same_size.items():
            key = address if len(same_size) == 1 else digest_elements(sharing[0])
            keys |= dict.fromkeys(map(id, sharing), key)
    return keys


class _WeightFile:
    """A file of weights; weights with equal `keys` are stored once."""

    def __init__(
        self, location: str, file: BinaryIO, keys: Mapping[int, Hashable] | None = None
    ) -> None:
        self._location, self._file, self._keys = location, file, keys or {}
        self._offsets: dict[Hashable, int] = {}

    def store(self, data: Array) -> dict[str, str | int]:
        """Write a weight unless the file has it, and return its position."""
        key = self._keys.get(id(data), id(data))
        if key not in self._offsets:
            self._file.write(b"\0" * (-self._file.tell() % _ALIGNMENT))
            self._offsets[key] = self._file.tell()
            write_elements(self._file, data)
        return {"location": self._location, "offset": self._offsets[key], "length": data.nbytes}


def _take_bytes(model: onnx.ModelProto) -> tuple[bytes, bytes]:
    """Return the bytes of a model without its graph, and those of the graph, which it loses."""
    graph: bytes = model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    return model.SerializeToString(deterministic=True), graph


def _write_head(header: TensorProto, data: Array) -> bytes:
    """Return the bytes that precede the elements of a weight in an initializer."""
    head: bytes = header.SerializeToString(deterministic=True)
    head += _encode_tag(_RAW_DATA) + _write_varint(data.nbytes)
    return _encode_tag(_INITIALIZER) + _write_varint(len(head) + data.nbytes) + head


def _view_bytes(data: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))


def _encode_tag(field: int) -> bytes:
    return bytes([field << 3 | 2])  # the wire type of fields with a length


def _write_varint(number: int) -> bytes:
    groups = []
    while number > 0x7F:  # each byte holds 7 bits
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])
