"""What older versions of ONNX Runtime cannot do, so that tests which need it say so.

A version alone decides, and what a model holds: no error is caught. What 1.23 lacks, which is the
newest for Python 3.10, was tried on each version up to 1.31: that is where the numbers come from.
From `_NEWEST` on, to which the project is held, nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, shape_inference

Version = tuple[int, int]

_NEWEST: Version = (1, 31)
# The newest opset of a version; later ones have all that there are.
_OPSETS: dict[Version, int] = {(1, 23): 23, (1, 24): 24}
_BYTES = {TensorProto.INT8, TensorProto.UINT8}


def _version() -> Version:
    major, minor, *_ = onnxruntime.__version__.split(".")
    return int(major), int(minor)


VERSION = _version()


class _Node(NamedTuple):
    """A node, the element types of its inputs and outputs (0 if unknown), and the opset."""

    op_type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    opset: int


class _Lack(NamedTuple):
    """What a node has that a version before this one has no kernel for, or a wrong one."""

    until: Version
    what: str
    has: Callable[[_Node], bool]


_LACKS = (
    _Lack(
        (1, 24),
        "Max and Min of 8-bit integers",
        lambda n: n.op_type in {"Max", "Min"} and not _BYTES.isdisjoint(n.outputs),
    ),
    _Lack(
        (1, 24),
        "QuantizeLinear of opset 23",
        lambda n: n.op_type == "QuantizeLinear" and n.opset > 22,
    ),
    # Elsewhere it reads and writes what is not its own.
    _Lack((1, 28), "ReverseSequence of any axes", lambda n: n.op_type == "ReverseSequence"),
    _Lack(
        (1, 29), "Cos of doubles", lambda n: n.op_type == "Cos" and TensorProto.DOUBLE in n.inputs
    ),
    # The bytes are written over the halves of bytes that they are made of.
    _Lack(
        (1, 31),
        "Cast of int4 to bytes",
        lambda n: (
            n.op_type == "Cast"
            and TensorProto.INT4 in n.inputs
            and not _BYTES.isdisjoint(n.outputs)
        ),
    ),
    _Lack(
        (1, 31),
        "DequantizeLinear of int2",
        lambda n: n.op_type == "DequantizeLinear" and TensorProto.INT2 in n.inputs,
    ),
)


def needs_runtime(model: onnx.ModelProto) -> None:
    """Skip the test if the ONNX Runtime that is installed cannot run a model."""
    why = missing_feature(model)
    if why:
        pytest.skip(why)


def needs_onnxruntime(major: int, minor: int, what: str) -> None:
    """Skip the test if the ONNX Runtime that is installed is older than what it needs of it."""
    if (major, minor) > VERSION:
        pytest.skip(_needs((major, minor), what))


def missing_feature(model: onnx.ModelProto, version: Version = VERSION) -> str:
    """Return why a version cannot run a model, nothing if it can."""
    if version >= _NEWEST:
        return ""
    opset = _opset(model)
    newest = _OPSETS.get(version, opset)
    if opset > newest:
        return _needs(
            min(v for v in (*_OPSETS, (1, 25)) if _OPSETS.get(v, opset) >= opset), f"opset {opset}"
        )
    for node in _nodes(shape_inference.infer_shapes(model).graph, opset, {}):
        for lack in _LACKS:
            if version < lack.until and lack.has(node):
                return _needs(lack.until, lack.what)
    return ""


def _needs(version: Version, what: str) -> str:
    return f"needs ONNX Runtime {'.'.join(map(str, version))}: {what}"


def _opset(model: onnx.ModelProto) -> int:
    return max((each.version for each in model.opset_import if not each.domain), default=0)


def _nodes(graph: onnx.GraphProto, opset: int, around: dict[str, int]) -> Iterator[_Node]:
    """Yield the nodes of a graph, and of those within it; `around` are the types outside."""
    infos = (*graph.value_info, *graph.input, *graph.output)
    types = around | {i.name: i.type.tensor_type.elem_type for i in infos}
    types |= {i.name: i.data_type for i in graph.initializer}
    for node in graph.node:
        inputs, outputs = (
            tuple(types.get(name, 0) for name in names) for names in (node.input, node.output)
        )
        yield _Node(node.op_type, inputs, outputs, opset)
        for inner in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
            yield from _nodes(inner, opset, types)
