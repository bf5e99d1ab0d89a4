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
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper

from tflite2onnx.builder.builder import WITH_GRAPHS, Body, Port, Value, find_bodies, walk_nodes
from tflite2onnx.builder.messages import (
    Inference,
    encode_item,
    encode_tag,
    encode_varint,
    find_transposes,
    walk_nested,
)
from tflite2onnx.builder.nodes import Node, Types, require_onnx_type
from tflite2onnx.builder.opsets import DOMAINS
from tflite2onnx.emit import Emitted
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.reader.buffers import pack_subbyte
from tflite2onnx.reader.containers.protobuf import read_fields
from tflite2onnx.replaced_files import check_single_file, check_weight_file, list_readers
from tflite2onnx.storage_table import StorageInfo, list_storage
from tflite2onnx.tensor import Array, DType, Tensor
from tflite2onnx.utils.atomic_files import Create, replace_all_atomically, resolve_target
from tflite2onnx.utils.mapped_files import digest_elements, find_address, write_elements
from tflite2onnx.utils.unique_names import Names

# bytes: a smaller constant is in the skeleton itself, where shape inference can read it.
_SMALL = 1024
WEIGHTS = "weights.data"  # the file of the weights that several models of a folder share
LARGEST_FILE = 2**31 - 1  # the largest number of bytes of a protobuf
_ALIGNMENT = 64  # bytes, for each weight in the second file
# The numbers of fields in onnx.proto.
_NODE, _INITIALIZER, _GRAPH, _RAW_DATA, _VALUE_INFO = 1, 5, 7, 9, 13
_FIELDS = {
    "node": (_NODE, onnx.NodeProto),
    "initializer": (_INITIALIZER, TensorProto),
    "input": (11, onnx.ValueInfoProto),
    "output": (12, onnx.ValueInfoProto),
    "value_info": (_VALUE_INFO, onnx.ValueInfoProto),
}


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A model without its large weights, and the large weights as (header, elements).

    `tensors` are the tensors of the TFLite model that it computes, with the names of their values.
    `dynamic_sizes` has the file's value of each dynamic size, by name. `plan` is the storage of all
    operands, and `endpoints` are the tensors that are inputs and outputs of the model. `source` is
    the model, or its bytes, which take a tenth of the memory: those of its graph come second.
    """

    source: onnx.ModelProto | tuple[bytes, bytes]
    weights: tuple[tuple[TensorProto, Array], ...]
    tensors: tuple[Port, ...] = ()
    dynamic_sizes: Mapping[str, int] = field(default_factory=dict)
    plan: StoragePlan = field(default_factory=StoragePlan)
    endpoints: tuple[Tensor, ...] = ()

    @property
    def storage(self) -> list[StorageInfo]:
        """How each quantized tensor is stored, and why."""
        return list_storage(self.plan, self.endpoints)

    @property
    def proto(self) -> onnx.ModelProto:
        """The model without its large weights."""
        if isinstance(self.source, onnx.ModelProto):
            return self.source
        rest, graph = self.source
        model: onnx.ModelProto = onnx.ModelProto.FromString(rest)
        model.graph.MergeFromString(graph)
        return model

    @property
    def properties(self) -> dict[str, str]:
        model = self.source
        if isinstance(model, tuple):
            model = onnx.ModelProto.FromString(model[0])
        return {entry.key: entry.value for entry in model.metadata_props}

    def _copy_proto(self) -> onnx.ModelProto:
        """Return a copy of the model without its large weights."""
        if isinstance(self.source, tuple):
            return self.proto
        model = onnx.ModelProto()
        model.CopyFrom(self.source)
        return model

    def list_pieces(
        self, external: Collection[str] = (), file: _WeightFile | None = None
    ) -> tuple[list[bytes], list[tuple[bytes, Array]]]:
        """Return the parts of the file before its large weights, and their (head, elements).

        External weights go to another file.
        """
        rest, graph = (
            self.source if isinstance(self.source, tuple) else _take_bytes(self._copy_proto())
        )
        pieces, weights = [graph], []
        for header, data in self.weights:
            if file is None or header.name not in external:
                weights.append((_write_head(header, data), data))
                continue
            moved = TensorProto(data_location=TensorProto.EXTERNAL)
            moved.MergeFrom(header)
            for key, entry in file.store(data).items():
                moved.external_data.add(key=key, value=str(entry))
            pieces.append(encode_item(_INITIALIZER, moved))
        size = sum(map(len, pieces)) + sum(len(head) + data.nbytes for head, data in weights)
        return [rest, encode_tag(_GRAPH), encode_varint(size), *pieces], weights

    @property
    def size(self) -> int:
        """Bytes of the model as one file."""
        start, weights = self.list_pieces()
        return sum(map(len, start)) + sum(len(head) + data.nbytes for head, data in weights)

    def serialize(self) -> bytes:
        start, weights = self.list_pieces()
        return b"".join(
            [*start, *(part for head, data in weights for part in (head, _view_bytes(data)))]
        )

    @property
    def transposes(self) -> tuple[int, int]:
        """The number of Transpose nodes, and the bytes that they write in one run.

        Dynamic sizes count with their values in the file. Runtimes transpose constants at load.
        """
        if isinstance(self.source, tuple) and b"Transpose" not in self.source[1]:
            return 0, 0
        read = self._read_graph()
        initializers = (*read("initializer"), *(header for header, _ in self.weights))
        constants = {each.name for each in initializers} - {x.name for x in read("input")}
        infos = chain(read("value_info"), read("output"))
        found = [find_transposes(read("node"), infos, constants)]
        for node in read("node", *WITH_GRAPHS):
            for graph in walk_nested(node, constants):
                infos = chain(graph.value_info, graph.output)
                found.append(find_transposes(graph.node, infos, constants))
        kinds = [info.type.tensor_type for _, known in found for info in known]
        return sum(n for n, _ in found), sum(nbytes(each, self.dynamic_sizes) for each in kinds)

    def _read_graph(self) -> Callable[..., Iterable[Any]]:
        """Return a function that yields the messages of a field of the graph, one at a time.

        If it gets words, it yields only messages that have one of them.
        """
        if isinstance(self.source, onnx.ModelProto):
            graph = self.source.graph
            return lambda field, *_: getattr(graph, field)
        items: dict[int, list[bytes]] = {}
        for number, item in read_fields(self.source[1]):
            items.setdefault(number, []).append(item)

        def read_items(field: str, *words: str) -> Iterator[Any]:
            number, kind = _FIELDS[field]
            parts = [word.encode() for word in words] or [b""]
            found = (item for item in items.get(number, ()) if any(part in item for part in parts))
            return map(kind.FromString, found)  # type: ignore[attr-defined]

        return read_items

    def assemble_model(self) -> onnx.ModelProto:
        """Return the whole model with copies of the weights."""
        model = self._copy_proto()
        for header, data in self.weights:
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(header)
            tensor.raw_data = data.tobytes()
        return model


def nbytes(kind: onnx.TypeProto.Tensor, dynamic_sizes: Mapping[str, int]) -> int:
    """Return the bytes of a tensor; `dynamic_sizes` has the values of dynamic sizes, by name."""
    elements = math.prod(dynamic_sizes.get(d.dim_param, d.dim_value) for d in kind.shape.dim)
    return int(elements * helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize)


def assemble(
    name: str,
    emitted: Emitted,
    properties: Mapping[str, str],
    version: str,
    *,
    required_states: bool = False,
) -> Skeleton:
    """Build the model; large constants become its weights.

    The initial value of a state is an initializer with the name of an input: its
    default. With `required_states` there are no such initializers.
    """
    names = ValueNames((*emitted.inputs, *emitted.outputs), emitted.tensors, emitted.nodes)
    opsets = [helper.make_opsetid("", emitted.opset)]
    domains = sorted({node.domain for node in walk_nodes(emitted.nodes)} - {""})
    model = onnx.ModelProto(
        ir_version=helper.find_min_ir_version_for(opsets),
        producer_name="tflite2onnx",
        producer_version=version,
        opset_import=[*opsets, *(helper.make_opsetid(d, DOMAINS.get(d, 1)) for d in domains)],
    )
    helper.set_model_props(model, dict(properties))
    graph, weights = _encode_graph(name, emitted, names, model, with_states=not required_states)
    live = {value for node in emitted.nodes for value in node.outputs}
    live |= {port.value for port in emitted.inputs}
    tensors = tuple(names.rename(port) for port in emitted.tensors if port.value in live)
    endpoints = tuple(port.tensor for port in (*emitted.inputs, *emitted.outputs))
    source = model.SerializeToString(deterministic=True), graph
    return Skeleton(source, weights, tensors, emitted.dynamic_sizes, emitted.plan, endpoints)


def _encode_graph(
    name: str, emitted: Emitted, names: ValueNames, model: onnx.ModelProto, *, with_states: bool
) -> tuple[bytes, tuple[tuple[TensorProto, Array], ...]]:
    """Return the bytes of the graph, and its large constants, which the bytes do not have.

    Nodes and types become bytes one by one: as messages all of them take ten times the memory.
    """
    outputs = {port.value for port in emitted.outputs}
    inner = [v for node in emitted.nodes for v in node.outputs if v not in outputs]
    untyped = {v for v in inner if v not in emitted.types}
    pieces, unclear = [], []
    protos = _make_nodes(emitted.nodes, names, emitted.types)
    for node, proto in zip(emitted.nodes, protos, strict=True):
        pieces.append(encode_item(_NODE, proto))
        if not untyped.isdisjoint(node.outputs):
            unclear.append(pieces[-1])
    headers = _make_initializers(emitted, names, with_states=with_states)
    endpoints = onnx.GraphProto(name=name)
    for header, data in headers:
        if data.nbytes <= _SMALL:
            if data.nbytes:
                header.raw_data = data.tobytes()
            endpoints.initializer.append(header)
    endpoints.input.extend(map(_describe_port, emitted.inputs))
    endpoints.output.extend(map(_describe_port, emitted.outputs))
    pieces.append(endpoints.SerializeToString(deterministic=True))
    weights = tuple((h, d) for h, d in headers if d.nbytes > _SMALL)
    typed = {names.find_name(v): v for v in inner if v not in untyped}

    def describe(name: str) -> onnx.ValueInfoProto:
        return next(_describe_values([typed[name]], names, emitted.types))

    inference = Inference(model, endpoints, [h for h, _ in weights], typed.keys(), describe)
    inferred = inference.infer_types(unclear)
    for value in inner:
        called = names.find_name(value)
        info = describe(called) if called in typed else inferred.get(called)
        if info is not None:
            pieces.append(encode_item(_VALUE_INFO, info))
    return b"".join(pieces), weights


def _make_initializers(
    emitted: Emitted, names: ValueNames, *, with_states: bool
) -> list[tuple[TensorProto, Array]]:
    """Return the headers and elements of all constants, and of the initial values of states."""
    constants = [
        (names.find_name(v), v.dtype, v.data)
        for v in dict.fromkeys(v for node in walk_nodes(emitted.nodes) for v in node.present)
        if v.data is not None and v.dtype is not None
    ]
    if with_states:
        states = emitted.inputs[len(emitted.inputs) - len(emitted.initial) :]
        pairs = zip(states, emitted.initial, strict=True)
        constants += [(port.name, port.dtype, data) for port, data in pairs]
    # Messages of their own would take ten times as many bytes as the parts of one message.
    shared = onnx.GraphProto()
    return [_make_initializer(shared.initializer.add(), *constant) for constant in constants]


def _make_initializer(
    header: TensorProto, name: str, dtype: DType, data: Array
) -> tuple[TensorProto, Array]:
    """Fill in the header of a constant; return it and the packed elements; a header has strings."""
    header.name, header.data_type = name, require_onnx_type(dtype)
    header.dims.extend(data.shape)
    if dtype is DType.STRING:
        header.string_data.extend(data.reshape(-1).tolist())
        return header, np.empty(0, np.uint8)
    return header, pack_subbyte(data, dtype)


def _make_nodes(
    nodes: Iterable[Node], names: ValueNames, types: Types, prefix: str = ""
) -> Iterator[onnx.NodeProto]:
    for index, node in enumerate(nodes):
        name = f"{prefix}{index}"
        outputs = [names.find_name(v) for v in node.outputs]
        inputs = ["" if v is None else names.find_name(v) for v in node.inputs]
        proto = onnx.NodeProto(op_type=node.op_type, input=inputs, output=outputs, name=name)
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
        yield proto


def _make_nested_graph(body: Body, names: ValueNames, types: Types, prefix: str) -> onnx.GraphProto:
    graph = onnx.GraphProto(name=body.name)
    graph.node.extend(_make_nodes(body.nodes, names, types, prefix))
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
    with resolve_target(path) as target:
        check_single_file(target)
        with replace_all_atomically() as create:
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
    skeleton: Skeleton,
    target: Path,
    create: Create,
    external_data: int | None = None,
    written: Collection[Path] = (),
) -> int:
    """Write the model to new files of `create`; return the number of bytes.

    `written` are the other ONNX files that are written at the same time.
    """
    external = list_external_weights(skeleton, external_data)
    if not external:
        return _write_pieces(create(target), *skeleton.list_pieces())
    if target.exists() and not target.is_file() and not target.is_dir():
        raise OSError(
            "it must be a regular file, because the weights go to a second file beside it"
        )
    # The last file that is created is the first to get its final name, so the weights exist before
    # the model does.
    place = target.with_name(f"{target.name}.data")
    check_weight_file(place, {target, *written})
    small, file = create(target), create(place)
    pieces = skeleton.list_pieces(external, _WeightFile(f"{target.name}.data", file))
    return _write_pieces(small, *pieces) + file.tell()


def _write_pieces(
    file: BinaryIO, start: Sequence[bytes], weights: Sequence[tuple[bytes, Array]]
) -> int:
    file.writelines(start)
    for head, data in weights:
        file.write(head)
        write_elements(file, data)
    return sum(map(len, start)) + sum(len(head) + data.nbytes for head, data in weights)


def write_folder(
    models: Mapping[Path, Skeleton],
    create: Create,
    external_data: int | None = None,
    name: str = "",
) -> None:
    """Write several models to new files of `create`.

    If models of a folder have equal weights, all weights of at least `external_data` bytes go to
    one file, `weights.data`, and equal weights are stored once. If other ONNX files read their
    weights from a file of this name, the file is `name.weights.data`.
    """
    for folder in dict.fromkeys(path.parent for path in models):
        inside = {path: result for path, result in models.items() if path.parent == folder}
        keys = identify_weights(inside.values())
        stored = [keys[id(data)] for skeleton in inside.values() for _, data in skeleton.weights]
        if len(inside) == 1 or len({*stored}) == len(stored):
            for path, skeleton in inside.items():
                write_to(skeleton, path, create, external_data, models)
            continue
        place = folder / WEIGHTS
        if name and {*list_readers(place)} - models.keys():
            place = folder / f"{name}.{WEIGHTS}"
        check_weight_file(place, models)
        files = [create(path) for path in inside]
        weights = _WeightFile(place.name, create(place), keys)
        for file, skeleton in zip(files, inside.values(), strict=True):
            sizes = {header.name: data.nbytes for header, data in skeleton.weights}
            external = frozenset(n for n, size in sizes.items() if size >= (external_data or 0))
            _write_pieces(file, *skeleton.list_pieces(external, weights))


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
    head += encode_tag(_RAW_DATA) + encode_varint(data.nbytes)
    return encode_tag(_INITIALIZER) + encode_varint(len(head) + data.nbytes) + head


def _view_bytes(data: Array) -> memoryview:
    return memoryview(np.ascontiguousarray(data).reshape(-1).view(np.uint8))


_LONG_NAME = 64  # The largest number of characters.
# The package in a part of a name: "torch.nn.modules.linear." before "Linear_query".
_PACKAGES = re.compile(r"(?<![^/;])(?:\w+\.)+(?=[A-Z])")


class ValueNames:
    """A unique name for each value: inputs and outputs come first, then tensors.

    Constants have the names of their tensors, and other values have numbers. Long names are
    shortened: in a small quantized network they would take as many bytes as the weights. PyTorch's
    exporter names a tensor after all modules around it, each with its Python package, in 300
    characters.
    """

    def __init__(
        self, endpoints: Sequence[Port], tensors: Iterable[Port], nodes: Iterable[Node]
    ) -> None:
        self._names: dict[Value, str] = {}
        self._free = Names(port.name for port in endpoints).make_unique
        for port in endpoints:
            self._names.setdefault(port.value, port.name)
        bodies = (body for node in walk_nodes(nodes) for body in find_bodies(node).values())
        for port in (*tensors, *(port for body in bodies for port in body.tensors)):
            if port.value not in self._names:
                self._names[port.value] = self._free(_shorten_name(port.name))

    def rename(self, port: Port) -> Port:
        name = self.find_name(port.value)
        return port if port.name == name else port._replace(name=name)

    def find_name(self, value: Value) -> str:
        """Return a value's name."""
        if value not in self._names:
            # TensorFlow's converter names a product of constants after all of their operators,
            # joined by ";".
            name = value.name.partition(";")[0] if value.data is not None else value.name
            self._names[value] = self._free(_shorten_name(name))
        return self._names[value]


def _shorten_name(name: str) -> str:
    """Return the name of an inner tensor; a long name is without the Python packages of modules."""
    return _PACKAGES.sub("", name) if len(name) > _LONG_NAME else name
