"""Changes to a TFLite model for a runtime: other entry points, and weights inside of the file."""

import os
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tflite2onnx.errors import ModelFileError, OptionError, VerifyError
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator, is_valid
from tflite2onnx.op.traits import MisreadInputs
from tflite2onnx.passes.cut_graph import cut_graph
from tflite2onnx.reader.flatbuffer import Table, Vector, read_root
from tflite2onnx.reader.model import check_identifier, read_model
from tflite2onnx.reader.source import AnySource, ModelSource, open_source
from tflite2onnx.reader.stored_bytes import StoredBytes
from tflite2onnx.signatures import find_signature
from tflite2onnx.tensor import DType, Shape, Tensor
from tflite2onnx.verification.runtimes import ModelFile, import_runtime

_NUMBER = 4  # bytes of an index or an offset
_MOST_BYTES = 2**31 - 1  # the largest number of bytes of a flatbuffer


def embed_external_weights(model: AnySource) -> ModelFile:
    """Return a model that LiteRT can read: the same model, or a copy with its external weights.

    LiteRT's Python package does not read external weights.

    Raises:
        VerifyError: the model would be too large for a flatbuffer.
        ModelFileError: the model, or a file with its weights, cannot be read.
    """
    source = open_source(model)
    if not _has_external_weights(source):
        is_file = isinstance(model, (str, os.PathLike, bytes))
        return model if is_file else bytes(source.data)  # type: ignore[return-value]
    root = read_root(source.data)
    groups, slices = (
        [root[name][i] for i in range(len(root[name]))]
        for name in ("external_buffer_groups", "external_buffers")
    )
    if sum(slice_table["length"] for slice_table in slices) + len(source.data) > _MOST_BYTES:
        raise VerifyError("a model with external weights must be below 2 GB to be verified")
    storage = StoredBytes(source, root["buffers"], groups, slices)
    schema = import_runtime("ai_edge_litert.schema_py_generated")
    whole = _unpack(bytes(source.data))
    for i, graph in enumerate(whole.subgraphs):
        for j, tensor in enumerate(graph.tensors):
            if tensor.externalBuffer:
                buffer = schema.BufferT()
                buffer.data = np.array(storage.read_tensor(root["subgraphs"][i]["tensors"][j]))
                tensor.buffer, tensor.externalBuffer = len(whole.buffers), 0
                whole.buffers.append(buffer)
    whole.externalBuffers = whole.externalBufferGroups = None
    return _pack(whole)


def replace_misread_constants(model: ModelFile) -> tuple[ModelFile, tuple[str, ...]]:
    """Return a model with constants that its operators read as meant, and these operators.

    LiteRT then computes what the operators mean. The indices of all tensors and operators stay.
    """
    graphs, root = read_model(model).graphs, read_root(open_source(model).data)
    found = [
        (i, op, inputs)
        for i, graph in enumerate(graphs)
        for op, inputs in _find_misread(graph, root["subgraphs"][i]["tensors"], root["buffers"])
    ]
    if not found:
        return model, ()
    schema = import_runtime("ai_edge_litert.schema_py_generated")
    whole = _unpack(bytes(_read_bytes(model)))
    for i, op, inputs in found:
        graph = whole.subgraphs[i]
        operator = graph.operators[op.index]
        operator.inputs = operator.inputs.copy()
        for index, constant in inputs.items():
            tensor, buffer = schema.TensorT(), schema.BufferT()
            tensor.name, tensor.shape = constant.name, np.array(constant.shape, np.int32)
            tensor.type = getattr(schema.TensorType, constant.dtype.name)
            tensor.buffer = len(whole.buffers)
            buffer.data = np.ascontiguousarray(constant.values).reshape(-1).view(np.uint8)
            if constant.quantization:
                tensor.quantization = scales = schema.QuantizationParametersT()
                scales.scale = constant.quantization.scale
                scales.zeroPoint = constant.quantization.zero_point
                scales.quantizedDimension = constant.quantization.axis
            operator.inputs[index] = len(graph.tensors)
            graph.tensors.append(tensor)
            whole.buffers.append(buffer)
    return _pack(whole), tuple(f"{op.code} (operator {op.index})" for _, op, _ in found)


def _find_misread(
    graph: Graph, tables: Vector, buffers: Vector
) -> Iterator[tuple[Op, Mapping[int, Tensor]]]:
    """Yield the operators of a graph that misread constants, with constants that they can read."""
    bools = ((i, t) for i, t in enumerate(graph.tensors) if t.dtype is DType.BOOL and t.is_constant)
    # C++ does not define booleans with bytes other than 0 and 1.
    odd = {t for i, t in bools if buffers[tables[i]["buffer"]]["data"].max(initial=0) > 1}
    for op in graph.ops:
        operator = find_operator(op)
        inputs = {i: t for i, t in enumerate(op.inputs) if t in odd and t is not None}
        if isinstance(operator, MisreadInputs) and is_valid(operator):
            inputs |= operator.readable_inputs
        if inputs:
            yield op, inputs


def move_signature_first(model: ModelFile, key: str | None) -> ModelFile:
    """Return a copy of a model whose first sub-graph belongs to a signature.

    A model that already begins with this sub-graph is returned unchanged. The first sub-graph and
    the signature's sub-graph are swapped. Indices in operators stay valid, because no operator
    refers to an entry point. The copy has no signatures, because they would name tensors of the
    other sub-graph.
    """
    index = 0 if key is None else find_signature(read_model(model), key)[0]
    if index == 0:
        return model
    data = _read_bytes(model)
    root = read_root(memoryview(bytes(data)))
    graphs, signatures = root["subgraphs"], root["signature_defs"]
    for target, there in ((0, index), (index, 0)):
        place = graphs.find_offset(target)
        struct.pack_into("<I", data, place, graphs[there].position - place)
    struct.pack_into("<I", data, signatures.find_offset(0) - _NUMBER, 0)
    return bytes(data)


def cut_entry_point(model: ModelFile, part: Mapping[str, Sequence[str]]) -> ModelFile:
    """Return a model whose main sub-graph is cut to a part, as `convert` cuts it.

    `part` are the names of its "inputs" and "outputs"; if empty, the model is returned unchanged.

    Raises:
        VerifyError: the model does not have the tensors, or has no inputs that can be replaced.
    """
    if not part:
        return model
    source, data = read_model(model), _read_bytes(model)
    try:
        cut = cut_graph(source, 0, part["inputs"] or None, part["outputs"])
        numbers = {tensor: i for i, tensor in enumerate(source.graphs[0].tensors)}
        graph = read_root(memoryview(bytes(data)))["subgraphs"][0]
        _keep_operators(data, graph["operators"], {op.index for op in cut.ops})
        for field in ("inputs", "outputs"):
            _append_indices(data, graph, field, [numbers[t] for t in getattr(cut, field)])
    except (OptionError, ValueError) as error:
        raise VerifyError(f"the TFLite model cannot be cut as the ONNX model: {error}") from error
    return bytes(data)


def extract_entry_point(
    model: ModelFile,
    signature: str | None,
    part: Mapping[str, Sequence[str]],
    shapes: Sequence[Shape],
) -> ModelFile:
    """Return the part of a model that was converted, with inputs of the converted shapes."""
    entry_point = cut_entry_point(move_signature_first(model, signature), part)
    declared_shapes = [tensor.shape for tensor in read_model(entry_point).graphs[0].inputs]
    return entry_point if declared_shapes == shapes else resize_entry_point(entry_point, shapes)


def resize_entry_point(model: ModelFile, shapes: Sequence[Shape]) -> bytes:
    """Return a model whose main sub-graph has inputs of these shapes, as `convert` resizes them.

    LiteRT's kernels compute all other shapes. Inputs of another rank keep their shape, except
    inputs that are declared as scalars, such as inputs of unknown rank.
    """
    data = _read_bytes(model)
    for i, tensor in enumerate(read_model(model).graphs[0].inputs):
        if not tensor.shape and i < len(shapes) and shapes[i]:
            data = _declare_axes(bytes(data), i, shapes[i])
    graph = read_root(memoryview(bytes(data)))["subgraphs"][0]
    for index, shape in zip(graph["inputs"].tolist(), shapes, strict=False):
        tensor = graph["tensors"][index]
        if len(tensor["shape"]) == len(shape):
            _append_indices(data, tensor, "shape", list(shape))
    return bytes(data)


def _declare_axes(data: bytes, index: int, shape: Shape) -> bytearray:
    """Return a model whose main sub-graph has an input of this shape, which the file leaves out."""
    whole = _unpack(data)
    graph = whole.subgraphs[0]
    graph.tensors[graph.inputs[index]].shape = np.array(shape, np.int32)
    return bytearray(_pack(whole))


def _unpack(data: bytes) -> Any:
    """Return a model of LiteRT's schema, with the bytes that the file has after the flatbuffer.

    Files of more than 2 GB have weights and options of custom operators there, and all files of
    ai-edge-quantizer.

    Raises:
        VerifyError: the model is too large for a flatbuffer.
    """
    if len(data) > _MOST_BYTES:
        raise VerifyError("the model must be below 2 GB to be changed for LiteRT")
    whole = import_runtime("ai_edge_litert.schema_py_generated").ModelT.InitFromPackedBuf(data)
    source = open_source(data)
    storage = StoredBytes(source, read_root(source.data)["buffers"], (), ())
    for i, buffer in enumerate(whole.buffers):
        if buffer.offset:
            buffer.data = np.array(storage.read_buffer(i))
            buffer.offset = buffer.size = 0
    for operator in chain.from_iterable(graph.operators or () for graph in whole.subgraphs):
        if operator.largeCustomOptionsOffset:
            place = operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize
            operator.customOptions = np.array(storage.read_at(*place))
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
    return whole


def _pack(whole: Any) -> bytes:
    """Return the bytes of a model of LiteRT's schema."""
    builder = import_runtime("flatbuffers").Builder(1 << 16)
    builder.Finish(whole.Pack(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def _keep_operators(data: bytearray, operators: Vector, kept: Collection[int]) -> None:
    """Shorten the vector of operators in place.

    A vector at the end of the file could not refer to them: offsets are positive.
    """
    first = operators.find_offset(0) if len(operators) else 0
    ends = [operators[i].position for i in sorted(kept)]
    for number, end in enumerate(ends):
        place = first + _NUMBER * number
        struct.pack_into("<I", data, place, end - place)
    if len(operators):
        struct.pack_into("<I", data, first - _NUMBER, len(ends))


def _append_indices(data: bytearray, table: Table, field: str, numbers: Sequence[int]) -> None:
    """Replace a vector of numbers of a sub-graph or tensor by a vector at the end of the file."""
    place = table.find_offset(field)
    if numbers == table[field].tolist():
        return
    if place is None or not len(table[field]):
        raise ValueError(f"the main sub-graph must have {field}, got none")
    indices = np.array(numbers, "<i4")
    data += bytes(-len(data) % _NUMBER)
    struct.pack_into("<I", data, place, len(data) - place)
    data += struct.pack("<I", indices.size) + indices.tobytes()


def _read_bytes(model: ModelFile) -> bytearray:
    return bytearray(model if isinstance(model, bytes) else Path(os.fspath(model)).read_bytes())


def _has_external_weights(source: ModelSource) -> bool:
    check_identifier(source.data)
    try:
        return bool(len(read_root(source.data)["external_buffers"]))
    except (struct.error, ValueError, IndexError) as error:
        raise ModelFileError(f"the TFLite model is truncated or damaged ({error})") from error
