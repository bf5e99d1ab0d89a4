"""Passes over the nodes of each graph.

`join_reshapes`: chains of Reshape, Squeeze and Unsqueeze become one Reshape or none. Operators emit
these nodes around ONNX operators with other axes, such as LSTM or a convolution along one axis.
Between two such operators, one node reverses the other.

`merge_equal_nodes`: nodes that compute the same values become one node. Operators that read the
same tensor may emit the same nodes: the extremes of data that several products quantize, or a
Reshape to a shape that an ONNX operator requires.

`omit_zero_states`: computed initial states of recurrent nodes that are zeros, the default of ONNX's
nodes. A layer whose batch is dynamic reads the size of the batch from its sequence, and makes zeros
of this size. These are eight nodes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from tflite2onnx.builder.builder import (
    Body,
    Builder,
    Port,
    find_bodies,
    find_makers,
    walk_nodes,
)
from tflite2onnx.builder.node_passes import Merged, Rewritten
from tflite2onnx.builder.nodes import Node, Types, Value
from tflite2onnx.builder.opsets import DOMAINS
from tflite2onnx.tensor import DType, Shape

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")
# Element types of which runtimes reshape constants only.
_PACKED = (DType.INT2, DType.INT4, DType.UINT4)


def join_reshapes(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes in which one Reshape of the value before a chain replaces the chain.

    Nested graphs stay as they are.
    """
    inner = (body for node in nodes for body in find_bodies(node).values())
    read_inside = {value for body in inner for n in walk_nodes(body.nodes) for value in n.inputs}
    chains = _Chains(g.types, {*results, *(value for value in read_inside if value is not None)})
    return tuple(chains.join(node, g.ints) for node in nodes)


def find_static_shape(value: Value | None, types: Types) -> Shape | None:
    """Return the shape of a value, None if it is not known or dynamic."""
    if value is None or value not in types:
        return None
    sizes = types[value][1]
    fixed = tuple(size for size in sizes if isinstance(size, int))
    return fixed if len(fixed) == len(sizes) else None


class _Chains:
    """Values, and earlier values that have the same elements in another shape."""

    def __init__(self, types: Types, kept: Collection[Value]) -> None:
        self._types = types
        self._kept = kept
        self._shapes: dict[Value, Shape] = {}
        # The input of the chain of Reshapes that ends in a value.
        self._source: dict[Value, Value] = {}
        # The input of the chain, if it has the shape of the value.
        self._equal: dict[Value, Value] = {}

    def join(self, node: Node, make_ints: Callable[[Sequence[int]], Value]) -> Node:
        """Return a node that reads the values before chains, if their shapes are known."""
        node = node.with_inputs(self._equal)
        x = node.inputs[0] if node.inputs else None
        if node.op_type not in _RESHAPES or node.domain or x is None or x.data is not None:
            return node
        (result,) = node.outputs
        self._infer_shapes(node, x, result)
        source, shape = self._source.get(x, x), self._find_shape(result)
        self._source[result] = source
        if shape is None or 0 in shape or self._types.get(source, (None,))[0] in _PACKED:
            return node
        if shape == self._find_shape(source) and result not in self._kept:
            self._equal[result] = source
        # Type inference would give a dynamic size another name.
        if source is x or (-1 in shape and result not in self._types):
            return node
        return Node("Reshape", (source, make_ints(shape)), node.outputs, {})

    def _infer_shapes(self, node: Node, x: Value, result: Value) -> None:
        """Infer the shape before or after Squeeze and Unsqueeze from the other shape."""
        axes = node.inputs[1] if node.inputs[1:] else None
        if node.op_type == "Reshape" or axes is None or axes.data is None:
            return
        short, long = (x, result) if node.op_type == "Unsqueeze" else (result, x)
        sizes, all_sizes = self._find_shape(short), self._find_shape(long)
        if sizes is not None and all_sizes is None:
            rest, rank = iter(sizes), len(sizes) + axes.data.size
            ones = {int(axis) % rank for axis in axes.data}
            self._shapes[long] = tuple(1 if i in ones else next(rest) for i in range(rank))
        elif all_sizes is not None and sizes is None:
            ones = {int(axis) % len(all_sizes) for axis in axes.data}
            kept = (size for i, size in enumerate(all_sizes) if i not in ones)
            self._shapes[short] = tuple(kept)

    def _find_shape(self, value: Value) -> Shape | None:
        """Return the shape of a value, None if it is not known or has several dynamic sizes.

        The only dynamic size is -1. It follows from the number of elements, which reshapes keep.
        """
        if value not in self._types:
            return self._shapes.get(value)
        shape = tuple(size if isinstance(size, int) else -1 for size in self._types[value][1])
        return shape if shape.count(-1) <= 1 else None


# Operators whose nodes may return another result each time. Operators in a user's domain and
# operators with nested graphs are kept too.
_KEPT = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "Loop", "Scan"),
    }
)
_KNOWN = ("", *DOMAINS)


def merge_equal_nodes(_: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return each node once, and the values of the removed nodes with the equal values that stay.

    Nodes are equal if they have the same operator, attributes and inputs. Constants are the same
    only if they are one `Value`: constants that must stay separate are not pooled
    (`Nodes.make_separate_constant`). Random nodes, loops, and nodes that compute one of the results
    stay. The nodes of a nested graph are compared with each other only.
    """
    return Rewritten(*_merge_nodes(nodes, results))


def _merge_nodes(
    nodes: Sequence[Node], outputs: Collection[Value], known: Merged = MappingProxyType({})
) -> tuple[tuple[Node, ...], Merged]:
    """Return the same; `known` are the values that were removed from the enclosing graphs."""
    merged = dict(known)
    alike: dict[tuple[object, ...], list[Node]] = {}
    results = []
    for node in nodes:
        current = read_merged(node, merged)
        key = (node.op_type, node.domain, current.inputs, len(node.outputs))
        may_go = node.op_type not in _KEPT and node.domain in _KNOWN
        others = alike.setdefault(key, []) if may_go else []
        match = next((each for each in others if _have_equal_attributes(each, current)), None)
        if match and not any(value in outputs for value in node.outputs):
            merged.update(zip(node.outputs, match.outputs, strict=True))
        else:
            others.append(current)
            results.append(current)
    return tuple(results), merged


def _have_equal_attributes(a: Node, b: Node) -> bool:
    if a.op_type != "If":
        return a.attributes == b.attributes
    return all(_compute_equal_values(body, b.attributes[key]) for key, body in a.attributes.items())


def _compute_equal_values(a: Body, b: Body) -> bool:
    """Return whether two graphs compute the same values, and no tensors of the file."""
    if a.tensors or b.tensors:
        return False
    _, merged = _merge_nodes((*a.nodes, *b.nodes), ())
    of_a, of_b = ([merged.get(value, value) for value in body.outputs] for body in (a, b))
    return of_a == of_b


def read_merged(node: Node, merged: Merged) -> Node:
    """Return a node that reads the values that stay, in its nested graphs too."""
    bodies = {key: _merge_inside(body, merged) for key, body in find_bodies(node).items()}
    node = node.with_inputs(merged)
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node


def _merge_inside(body: Body, known: Merged) -> Body:
    outputs = tuple(known.get(value, value) for value in body.outputs)
    nodes, merged = _merge_nodes(body.nodes, outputs, known)
    tensors = rename_ports(body.tensors, merged)
    return body._replace(nodes=nodes, outputs=outputs, tensors=tensors)


def rename_ports(ports: Sequence[Port], merged: Merged) -> tuple[Port, ...]:
    """Return tensors with the values that stay."""
    if not merged:
        return (*ports,)
    return tuple(port._replace(value=merged.get(port.value, port.value)) for port in ports)


_STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}  # the number of initial states
_FIRST = 5  # the index of the first initial state among the inputs
_KEEPS = ("Reshape", "Squeeze", "Unsqueeze", "Identity")


def omit_zero_states(_: Builder, nodes: Sequence[Node], __: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes without initial states that are 0 for each batch."""
    if not any(node.op_type in _STATES for node in nodes):
        return tuple(nodes)
    makers = find_makers(nodes)
    return tuple(_omit_states(node, makers) for node in nodes)


def _omit_states(node: Node, makers: Mapping[Value | None, Node]) -> Node:
    end = _FIRST + _STATES.get(node.op_type, 0)
    states, rest = node.inputs[_FIRST:end], node.inputs[end:]
    if node.op_type not in _STATES or not all(_is_zero(state, makers) for state in states):
        return node
    omitted = [None] * len(states) if rest else []
    return node._replace(inputs=(*node.inputs[:_FIRST], *omitted, *rest))


def _is_zero(value: Value | None, makers: Mapping[Value | None, Node]) -> bool:
    """Return whether a value is zeros of a computed shape."""
    node = makers.get(value) if value else None
    while node and node.op_type in _KEEPS:
        node = makers.get(node.present[0])
    if not node or node.op_type != "Expand":
        return False
    data = node.present[0].data
    return data is not None and not data.any()
