"""Nodes that compute the same values, which become one node.

Operators that read the same tensor may emit the same nodes: the extremes of data that several
products quantize, or a Reshape to a shape that an ONNX operator requires.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from tflite2onnx.builder.builder import Body, Port, find_bodies
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.opsets import DOMAINS

# Operators whose nodes may return another result each time. Operators in a user's domain and
# operators with nested graphs are kept too.
_KEPT = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "If", "Loop", "Scan"),
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
    (`Nodes.make_separate_constant`). Random nodes, nodes with nested graphs, and nodes that compute
    one of `outputs`, the outputs of the graph, stay. The nodes of a nested graph are compared with
    each other only; `known` are the values that were removed from the enclosing graphs.
    """
    merged = dict(known)
    alike: dict[tuple[object, ...], list[Node]] = {}
    results = []
    for node in nodes:
        current = _read_merged(node, merged)
        key = (node.op_type, node.domain, current.inputs, len(node.outputs))
        may_go = node.op_type not in _KEPT and node.domain in _KNOWN
        others = alike.setdefault(key, []) if may_go else []
        match = next((other for other in others if other.attributes == node.attributes), None)
        if match and not any(value in outputs for value in node.outputs):
            merged.update(zip(node.outputs, match.outputs, strict=True))
        else:
            others.append(current)
            results.append(current)
    return tuple(results), merged


def _read_merged(node: Node, merged: Merged) -> Node:
    """Return a node that reads the values that stay, in its nested graphs too."""
    bodies = {key: _merge_inside(body, merged) for key, body in find_bodies(node).items()}
    node = node.with_inputs(merged)
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node


def _merge_inside(body: Body, known: Merged) -> Body:
    outputs = tuple(known.get(value, value) for value in body.outputs)
    nodes, merged = merge_equal_nodes(body.nodes, outputs, known)
    tensors = rename_ports(body.tensors, merged)
    return body._replace(nodes=nodes, outputs=outputs, tensors=tensors)


def rename_ports(ports: Sequence[Port], merged: Merged) -> tuple[Port, ...]:
    """Return tensors with the values that stay."""
    if not merged:
        return (*ports,)
    return tuple(port._replace(value=merged.get(port.value, port.value)) for port in ports)
