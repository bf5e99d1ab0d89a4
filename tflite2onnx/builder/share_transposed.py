"""Constants that a model reads in two axis orders, which are stored once.

Language models read one table twice: as rows that tokens choose, and as the weights of the last
product, which ONNX Runtime's integer kernels read transposed. Runtimes compute the Transpose of a
constant when they load the model.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence

import numpy as np

from tflite2onnx.builder.builder import bodies_of, every_node
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.reader.buffers import pack_subbyte
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.mapped_files import digest_elements, find_address

_LEAST = 1024  # bytes; smaller constants are not worth a node
_BYTE = 8


def share_transposed(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes of the main graph, with a Transpose in place of each second order.

    A constant is the transpose of another one if both are views of the same memory, which is that
    of a tensor in the file. Elements of less than 8 bits may also be read as bytes. The model then
    has two constants of the same bytes, which a file of the weights of several models stores once.
    """
    inputs = (value for node in every_node(nodes) for value in node.inputs)
    constants = [(v, v.data) for v in dict.fromkeys(inputs) if v is not None and v.data is not None]
    large = [(value, data) for value, data in constants if data.nbytes > _LEAST]
    stored = {_place(value, data): value for value, data in large if data.flags.c_contiguous}
    bytes_read = [data for value, data in large if value.dtype is DType.UINT8]
    narrow = any(map(_is_narrow, constants))
    digests = {digest_elements(data) for data in bytes_read if narrow}
    made: dict[Value, Value] = {}
    added = []
    for value, data in large:
        if data.flags.c_contiguous:
            continue
        # The axes from the widest step in memory to the narrowest are those in the file.
        order = np.argsort([-step for step in data.strides], kind="stable")
        plain = data.transpose(order)
        if not plain.flags.c_contiguous:
            continue
        source = stored.get(_place(value, plain))
        if source is None and _has_bytes(digests, value, plain):
            source = stored.setdefault(_place(value, plain), Value(plain, value.dtype, value.name))
        if source is not None:
            made[value] = Value(name=value.name)
            permutation = np.argsort(order).tolist()
            added.append(Node("Transpose", (source,), (made[value],), {"perm": permutation}))
    return (*added, *(read_made(node, made) for node in nodes)) if made else tuple(nodes)


def _place(value: Value, data: Array) -> Hashable:
    """Return where the elements of a constant are, and how they are read."""
    return find_address(data), data.shape, data.strides, data.dtype, value.dtype


def _is_narrow(constant: tuple[Value, Array]) -> bool:
    dtype = constant[0].dtype
    return dtype is not None and 0 < dtype.bits < _BYTE


def _has_bytes(digests: Collection[bytes], value: Value, plain: Array) -> bool:
    """Return whether a constant of bytes has the elements of a narrow constant."""
    if value.dtype is None or not _is_narrow((value, plain)):
        return False
    return digest_elements(pack_subbyte(plain, value.dtype)) in digests


def read_made(node: Node, made: Mapping[Value, Value]) -> Node:
    """Return a node that reads the computed values, also in its graphs."""
    node = node.with_inputs(made)
    bodies = {
        key: body._replace(nodes=tuple(read_made(inner, made) for inner in body.nodes))
        for key, body in bodies_of(node).items()
    }
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node
