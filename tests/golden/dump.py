"""An ONNX model as text that can be read, and compared line by line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

# Constants of up to this many elements are written where they are used. So are constants without a
# name of their own. Values without one are numbered here, because the number in the file depends on
# the constants before it.
_SHOWN = 8
_NAMELESS = re.compile(r"_\d+")
_VALUE = re.compile(r"(?<![\w./])_\d+(?![\w./])")
_DIGITS = 12
_ENDS = ("tflite2onnx.inputs", "tflite2onnx.outputs", "tflite2onnx.states")


def dump(model: onnx.ModelProto) -> str:
    """Return the text of a converted model: the names, types and nodes of its graph.

    A node is a line: outputs = type(inputs; attributes). An input or output of the model has its
    layouts in TFLite and in ONNX. A constant has the first digits of the SHA-256 of its elements;
    small constants, and constants with generated names, are written in the node.
    """
    properties = {p.key: p.value for p in model.metadata_props}
    layouts = {
        name: f" {end['tflite_layout']} -> {end['onnx_layout']}"
        for key in _ENDS
        for end in json.loads(properties.get(key, "[]"))
        for name in (end["name"], end.get("output"))
    }
    opsets = ", ".join(f"{o.domain or 'opset'} {o.version}" for o in model.opset_import)
    lines = [f"{opsets}, IR {model.ir_version}"]
    lines += [f"{key}: {value}" for key, value in properties.items() if key not in _ENDS]
    lines += _number_values(_graph(model.graph, layouts))
    return "\n".join(lines) + "\n"


def _number_values(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines in which values without a name have numbers in the sequence of the lines."""
    numbers: dict[str, str] = {}
    for line in lines:
        yield _VALUE.sub(lambda m: numbers.setdefault(m[0], f"_{len(numbers) + 1}"), line)


@dataclass(frozen=True)
class _Scope:
    """The names visible in a graph: types of values, and constants without their own line."""

    types: Mapping[str, str]
    constants: Mapping[str, str]

    def typed_name(self, name: str) -> str:
        return f"{_word(name)} {self.types.get(name, '?')}"

    def operand(self, name: str) -> str:
        return self.constants.get(name) or _word(name) or "-"


def _graph(
    graph: onnx.GraphProto, layouts: Mapping[str, str], outer: _Scope | None = None
) -> Iterator[str]:
    infos = (*graph.input, *graph.output, *graph.value_info)
    inline = {
        t.name: _constant(t)
        for t in graph.initializer
        if _is_small(t) or _NAMELESS.fullmatch(t.name)
    }
    scope = _Scope(
        {**(outer.types if outer else {}), **{i.name: _info(i) for i in infos}},
        {**(outer.constants if outer else {}), **inline},
    )
    yield ""
    yield f"{_word(graph.name)}"
    ends = (("input", graph.input), ("output", graph.output))
    for kind, ports in ends:
        yield from (f"{kind} {scope.typed_name(p.name)}{layouts.get(p.name, '')}" for p in ports)
    for tensor in graph.initializer:
        if tensor.name not in inline:
            yield f"constant {_word(tensor.name)} {_constant(tensor)}"
    for node in graph.node:
        yield from _node(node, scope)


def _node(node: onnx.NodeProto, scope: _Scope) -> Iterator[str]:
    made = ", ".join(scope.typed_name(name) if name else "-" for name in node.output)
    attributes = sorted(node.attribute, key=lambda a: a.name)
    flat = [f"{a.name}={_attribute(a)}" for a in attributes if a.type != AttributeProto.GRAPH]
    operands = "; ".join(", ".join(part) for part in (map(scope.operand, node.input), flat) if part)
    domain = f"{node.domain}." if node.domain else ""
    yield f"{made} = {domain}{node.op_type}({operands.removesuffix('; ')})"
    for attribute in attributes:
        if attribute.type == AttributeProto.GRAPH:
            yield f"  {attribute.name}:"
            yield from (f"    {line}".rstrip() for line in _graph(attribute.g, {}, scope))


def _attribute(attribute: AttributeProto) -> str:
    value: Any = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        return _constant(value)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return f"[{', '.join(map(_scalar, value))}]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bytes):
        return _word(value.decode(errors="backslashreplace"))
    # Float attributes have single precision: write 0.2, not 0.20000000298023224.
    return str(np.float32(value)) if isinstance(value, float) else str(value)


def _word(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _info(info: onnx.ValueInfoProto) -> str:
    kind = info.type.tensor_type
    if not kind.HasField("shape"):
        return f"{_type(kind.elem_type)}[?]" if kind.elem_type else "?"
    sizes = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    return f"{_type(kind.elem_type)}{_shape(sizes)}"


def _type(code: int) -> str:
    return str(TensorProto.DataType.Name(code)).lower()


def _shape(sizes: Sequence[object]) -> str:
    return f"[{','.join(map(str, sizes))}]"


def _is_small(tensor: TensorProto) -> bool:
    return int(np.prod(tensor.dims)) <= _SHOWN


def _constant(tensor: TensorProto) -> str:
    kind = f"{_type(tensor.data_type)}{_shape(tensor.dims) if tensor.dims else ''}"
    if _is_small(tensor):
        values = numpy_helper.to_array(tensor).reshape(-1)
        return f"{kind}{{{', '.join(map(_scalar, values))}}}"
    # Only strings are not stored as raw bytes.
    raw = tensor.raw_data or b"\0".join(tensor.string_data)
    return f"{kind} {sha256(raw).hexdigest()[:_DIGITS]}"
