"""Chains of Reshape, Squeeze and Unsqueeze, each of which becomes one Reshape or none.

Operators emit these nodes around ONNX operators with other axes, such as LSTM or a convolution
along one axis. Between two such operators, one node reverses the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tflite2onnx.builder.builder import find_bodies, walk_nodes
from tflite2onnx.builder.nodes import Node, Types, Value
from tflite2onnx.tensor import DType, Shape

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")
# Element types for which ONNX Runtime's Reshape takes constants only.
_PACKED = (DType.INT2, DType.INT4, DType.UINT4)


def join_reshapes(
    nodes: Sequence[Node],
    types: Types,
    outputs: Collection[Value],
    make_ints: Callable[[Sequence[int]], Value],
) -> tuple[Node, ...]:
    """Return nodes in which one Reshape of the value before a chain replaces the chain.

    `outputs` are the outputs of the graph. `make_ints` returns a constant for a shape. Nodes that
    nothing reads any more are kept: `eliminate_dead_nodes` removes them. Nested graphs stay as they
    are.
    """
    inner = (body for node in nodes for body in find_bodies(node).values())
    read_inside = {value for body in inner for n in walk_nodes(body.nodes) for value in n.inputs}
    chains = _Chains(types, {*outputs, *(value for value in read_inside if value is not None)})
    return tuple(chains.join(node, make_ints) for node in nodes)


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
        if shape is None or 0 in shape or self._is_packed(source):
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

    def _is_packed(self, value: Value) -> bool:
        return value in self._types and self._types[value][0] in _PACKED
