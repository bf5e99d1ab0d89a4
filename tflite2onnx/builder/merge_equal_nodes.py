"""Nodes that compute the same values, which become one node.

Operators that read the same tensor may emit the same nodes: the extremes of data that several
products quantize, or a Reshape to a shape that ONNX wants.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tflite2onnx.builder.builder import Body, Port, bodies_of
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.opsets import DOMAINS

# Operators that may return another result each time, as may operators of domains of the user.
_RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)

_KNOWN = ("", *DOMAINS)

Merged = Mapping[Value, Value]


def merge_equal_nodes(
    nodes: Sequence[Node], outputs: Collection[Value], known: Merged = MappingProxyType({})
) -> tuple[tuple[Node, ...], Merged]:
    """Return each node once, and the values of the removed nodes with the equal values that stay.

    Nodes are equal if they have the same operator, attributes and inputs. Constants are the same
    only if they are one `Value`: constants that must stay separate are not pooled
    (`Nodes.own_constant`). Random nodes, nodes with graphs inside, and nodes that compute one of
    `outputs`, the outputs of the graph, stay. The nodes of a graph inside are compared among
    themselves; `known` are the values that were removed around it.
    """
    merged = dict(known)
    first: dict[Hashable, Node] = {}
    kept = []
    for node in nodes:
        current = _read_merged(node, merged)
        same = first.setdefault(_key(current), current)
        if same is not current and not any(value in outputs for value in node.outputs):
            merged.update(zip(node.outputs, same.outputs, strict=True))
        else:
            kept.append(current)
    return tuple(kept), merged


def _read_merged(node: Node, merged: Merged) -> Node:
    """Return a node that reads the values that stay, also in its graphs."""
    bodies = {key: _merge_inside(body, merged) for key, body in bodies_of(node).items()}
    node = node.with_inputs(merged)
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node


def _merge_inside(body: Body, known: Merged) -> Body:
    outputs = tuple(known.get(value, value) for value in body.outputs)
    nodes, merged = merge_equal_nodes(body.nodes, outputs, known)
    tensors = rename_ports(body.tensors, merged)
    return body._replace(nodes=nodes, outputs=outputs, tensors=tensors)


def rename_ports(ports: Sequence[Port], merged: Merged) -> tuple[Port, ...]:
    """Return tensors with the values that stay."""
    return tuple(port._replace(value=merged.get(port.value, port.value)) for port in ports)


def _key(node: Node) -> Hashable:
    """Return a key that equal nodes share; a node that stays has a key of its own."""
    if node.op_type in _RANDOM or node.domain not in _KNOWN or bodies_of(node):
        return node.outputs
    attributes = tuple((key, _freeze(value)) for key, value in sorted(node.attributes.items()))
    return node.op_type, node.domain, node.inputs, attributes, len(node.outputs)


def _freeze(value: object) -> Hashable:
    """Return an attribute as a hashable value; lists of numbers and text become tuples."""
    if isinstance(value, Hashable):
        return value
    return tuple(value) if isinstance(value, Iterable) else id(value)
