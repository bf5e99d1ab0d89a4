"""Features that older versions of ONNX Runtime lack; tests that need them are skipped.

Only the version and the nodes of a model decide; no error is caught. The features that version 1.23
lacks were tried on each version up to 1.31, which gave the numbers below. No test is skipped from
`_NEWEST` on, the version that the project supports fully.
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
# The newest opset of a version; later versions have all opsets.
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
    """A property of a node for which versions before this one have no kernel or a wrong one."""

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
    # The older kernel reads and writes out of bounds.
    _Lack((1, 28), "ReverseSequence of any axes", lambda n: n.op_type == "ReverseSequence"),
    _Lack(
        (1, 29), "Cos of doubles", lambda n: n.op_type == "Cos" and TensorProto.DOUBLE in n.inputs
    ),
    # The older kernel overwrites packed input elements that it has not read yet.
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
    """Skip the test if the installed ONNX Runtime cannot run a model."""
    why = missing_feature(model)
    if why:
        pytest.skip(why)


def needs_onnxruntime(major: int, minor: int, what: str) -> None:
    """Skip the test if the installed ONNX Runtime is older than this version."""
    if (major, minor) > VERSION:
        pytest.skip(_needs((major, minor), what))


def missing_feature(model: onnx.ModelProto, version: Version = VERSION) -> str:
    """Return why a version cannot run a model; empty if the version can."""
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
    """Yield the nodes of a graph and of its inner graphs; `around` are the types of outer names."""
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
