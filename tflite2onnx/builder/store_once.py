"""Constants that nodes compute from other constants, so that the file stores bytes once.

Language models read one table twice: as rows that tokens choose, and as the weights of the last
product, which integer kernels read transposed (`share_transposed`).

A convolution that computes several pixels at once has the filters of one pixel several times, at
different positions of a larger window. Padded channels are zeros (`assemble_constants`).

Runtimes compute nodes that read constants only when they load the model, before they fuse
DequantizeLinear with an operator.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, StoredAssembly, find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.layout import Order, make_identity
from tflite2onnx.reader.buffers import pack_subbyte
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.mapped_files import digest_elements, find_address

_LEAST = 1024  # bytes; a smaller constant is stored whole
_BYTE = 8
# A constant is stored whole if the nodes that compute it, of about so many bytes each, are larger
# than the constant, or if the file becomes smaller by less than this part: each node makes the
# graph longer to read.
_NODE = 200
_LEAST_SAVED = 1 / 128
_FIRST_OPSET = 13  # the first opset whose Pad has integers of 8 bits in runtimes
_PADDED = (DType.FLOAT32, DType.INT8, DType.UINT8)


def share_transposed(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> tuple[Node, ...]:
    """Return the nodes of the main graph, with one order of each constant and Transposes.

    A constant is the transpose of another constant if both are views of the same tensor of the file
    in memory. Constants of float32 that are the same view become one. Elements of less than 8 bits
    may also be read as bytes. The model then has two constants of the same bytes, which a weights
    file of several models stores once. Constants that the builder keeps have the file's order.
    """
    inputs = (value for node in walk_nodes(nodes) for value in node.inputs)
    constants = [(v, v.data) for v in dict.fromkeys(inputs) if v is not None and v.data is not None]
    large = [(value, data) for value, data in constants if data.nbytes > _LEAST]
    values = {_place(value, data): value for value, data in large if data.flags.c_contiguous}
    bytes_read = [data for value, data in large if value.dtype is DType.UINT8]
    narrow = any(map(_is_narrow, constants))
    has_int2 = any(value.dtype is DType.INT2 for value, _ in large)
    only_cast = _find_cast_constants(nodes) if has_int2 else ()
    sources = _find_sources(large)
    digests = {digest_elements(data) for data in bytes_read if narrow}
    outputs: dict[Value, Value] = {}
    added = []
    for value, data in large:
        if data.flags.c_contiguous:
            # Integers may be separate on purpose (`make_separate_constant`).
            if value.dtype is DType.FLOAT32 and values[_place(value, data)] is not value:
                outputs[value] = values[_place(value, data)]
            continue
        # The file has its axes in the sequence of decreasing strides.
        order, plain = _find_file_order(data)
        if not plain.flags.c_contiguous:
            continue
        source = values.get(_place(value, plain))
        if source is None and (shared := sources.get(_span(value, data))):
            source = shared
            if shared.data is not None and shared.data.shape != plain.shape:
                source, shape = Value(), Value(np.array(plain.shape, np.int64), DType.INT64)
                added.append(Node("Reshape", (shared, shape), (source,), {}))
        if source is None and (
            (find_address(plain), plain.shape) in g.kept or _has_bytes(digests, value, plain)
        ):
            source = values.setdefault(_place(value, plain), Value(plain, value.dtype, value.name))
        if source is None or (value.dtype is DType.INT2 and value not in only_cast):
            continue
        if value.dtype is DType.INT2:
            # Runtimes cannot keep computed constants of int2 (docs/runtime-faults.md).
            wide = Value()
            added.append(Node("Cast", (source,), (wide,), {"to": require_onnx_type(DType.INT8)}))
            source = wide
        outputs[value] = Value(name=value.name)
        permutation = np.argsort(order).tolist()
        added.append(Node("Transpose", (source,), (outputs[value],), {"perm": permutation}))
    return (*added, *(replace_inputs(node, outputs) for node in nodes)) if outputs else tuple(nodes)


def _find_sources(constants: Iterable[tuple[Value, Array]]) -> dict[Hashable, Value]:
    """Return, by its memory, the constant of each tensor whose views have several shapes or orders.

    A layer has such views if its weights are those of a convolution on one processor, and of a
    product on another. Elements of less than 8 bits stay apart.
    """
    views: dict[Hashable, dict[Hashable, tuple[Value, Array]]] = {}
    for value, data in constants:
        plain = _find_file_order(data)[1]
        if plain.flags.c_contiguous and not _is_narrow((value, data)):
            places = views.setdefault(_span(value, data), {})
            places.setdefault((data.shape, data.strides), (value, plain))
    sources = {}
    for span, places in views.items():
        if len(places) > 1:
            found = (value for value, plain in places.values() if value.data is plain)
            value, plain = next(iter(places.values()))
            sources[span] = next(found, None) or Value(plain, value.dtype, value.name)
    return sources


def _find_file_order(data: Array) -> tuple[Array, Array]:
    """Return the sequence of axes by decreasing strides, which the file has, and such a view."""
    if data.flags.c_contiguous:
        return np.arange(data.ndim), data
    order = np.argsort([-step for step in data.strides], kind="stable")
    return order, data.transpose(order)


def _span(value: Value, data: Array) -> Hashable:
    """Return a key: the memory and the type of a constant's elements, in any order."""
    return find_address(data), data.nbytes, data.dtype, value.dtype


def _find_cast_constants(nodes: Sequence[Node]) -> Collection[Value]:
    """Return the constants that only Cast reads, so that they may have a wider type."""
    readers = [(node.op_type, value) for node in walk_nodes(nodes) for value in node.present]
    return {value for kind, value in readers if kind == "Cast"} - {
        value for kind, value in readers if kind != "Cast"
    }


def _place(value: Value, data: Array) -> Hashable:
    """Return a key: the memory address of a constant's elements, and how they are read."""
    return find_address(data), data.shape, data.strides, data.dtype, value.dtype


def _is_narrow(constant: tuple[Value, Array]) -> bool:
    dtype = constant[0].dtype
    return dtype is not None and 0 < dtype.bits < _BYTE


def _has_bytes(digests: Collection[bytes], value: Value, data: Array) -> bool:
    """Return whether a uint8 constant has the same bytes as a constant of narrow elements."""
    if value.dtype is None or not _is_narrow((value, data)):
        return False
    return digest_elements(pack_subbyte(data, value.dtype)) in digests


def replace_inputs(node: Node, outputs: Mapping[Value, Value]) -> Node:
    """Return a node that reads other values, in its nested graphs too."""
    node = node.with_inputs(outputs)
    bodies = {
        key: body._replace(nodes=tuple(replace_inputs(inner, outputs) for inner in body.nodes))
        for key, body in find_bodies(node).items()
    }
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node


def assemble_constants(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes that make constants of smaller constants, then the nodes of the main graph."""
    if not g.assemblies or g.opset < _FIRST_OPSET:
        return tuple(nodes)
    inner, made = g.make_nested(), dict[Value, Value]()
    inner.types = {}
    adaptive = {weight.integers for weight in g.adaptive.values()}
    assembled: dict[Hashable, Value] = {}
    inputs = dict.fromkeys(x for node in walk_nodes(nodes) for x in node.present)
    constants = [(value, value.data) for value in inputs if value.data is not None]
    minimum = sum(data.nbytes for _, data in constants) * _LEAST_SAVED
    for value, elements in constants:
        entry = g.assemblies.get(id(elements))
        if entry is None or value.dtype not in _PADDED or not _is_smaller(entry, minimum):
            continue
        # An adaptive weight may only share memory with adaptive weights, see
        # `make_separate_constant`.
        key = identify_assembly(entry) if value in adaptive else value
        if key not in assembled:
            assembled[key] = _assemble(inner, value, entry)
        made[value] = assembled[key]
    return (*inner.nodes, *(replace_inputs(node, made) for node in nodes)) if made else tuple(nodes)


def _is_smaller(entry: StoredAssembly, minimum: float) -> bool:
    """Return whether the nodes compute the same elements, and save `minimum` bytes or more."""
    data, parts = entry.elements, entry.assembly
    if data.nbytes - parts.source.nbytes - _NODE * (len(parts.pads) + 2) < minimum:
        return False
    return np.array_equal(parts.elements.transpose(entry.order).reshape(data.shape), data)


def identify_assembly(entry: StoredAssembly) -> Hashable:
    """Return a key that is equal for constants that are made of the same memory in the same way."""
    made = entry.assembly
    memory = find_address(made.source), made.source.shape, made.source.strides, made.source.dtype
    return memory, made.pads, made.permutation, made.shape, made.fill, entry.order, entry.shape


def _assemble(g: Builder, value: Value, entry: StoredAssembly) -> Value:
    """Return a constant that Pad, Concat, Transpose and Reshape make of a smaller constant."""
    assembly, dtype = entry.assembly, value.dtype or DType.FLOAT32
    # The copies have the order of the reader, so no Transpose is needed, unless axes are joined.
    first = entry.order if assembly.keeps_axes else make_identity(assembly.source.ndim)
    source = Value(assembly.source.transpose(first), dtype, value.name)
    fill = g.scalar(assembly.fill, dtype)
    copies = [_pad(g, source, [pads[axis] for axis in first], fill) for pads in assembly.pads]
    result = copies[0] if len(copies) == 1 else g.Concat(*copies, axis=first.index(0))
    if not assembly.keeps_axes:
        result = g.reshape(_transpose(g, result, assembly.permutation), assembly.shape)
        result = _transpose(g, result, entry.order)
    return result if entry.shape is None else g.reshape(result, entry.elements.shape)


def _pad(g: Builder, x: Value, pads: Sequence[tuple[int, int]], fill: Value) -> Value:
    sizes = [n for side in zip(*pads, strict=True) for n in side]
    return g.Pad(x, g.ints(sizes), fill) if any(sizes) else x


def _transpose(g: Builder, x: Value, permutation: Order) -> Value:
    moves = permutation != make_identity(len(permutation))
    return g.Transpose(x, perm=permutation) if moves else x
