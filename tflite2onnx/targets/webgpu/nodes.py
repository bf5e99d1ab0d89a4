"""Nodes that the GPU computes, where the provider has no kernel.

Round has none: each one would fetch its data from the GPU. A sum with a number whose last digit is
1 has no fraction, so that the sum itself is rounded, halves to even. GPUs round sums as CPUs do.
"""

from collections.abc import Collection, Iterator, Sequence

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.emit import keep_nodes
from tflite2onnx.tensor import DType

# From 2 ** 23 to 2 ** 24 neighbours of float32 differ by 1. A number under 2 ** 22 keeps the sum in
# this range, and a larger one changes by 2 ** -22 of itself at most.
_WHOLE = 1.5 * 2**23


def rewrite_nodes(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> tuple[tuple[Node, ...], Collection[Value]]:
    """Return the nodes of the main graph; none of their values changes its type."""
    live = eliminate_dead_nodes(nodes, results)
    quotients = {
        node.outputs[0]
        for node in live
        if node.op_type == "Div" and node.present[-1].dtype is DType.FLOAT32
    }
    reals = frozenset(quotients.union(v for v in g.types if g.types[v][0] is DType.FLOAT32))
    return keep_nodes(g, [each for node in live for each in _round_by_sum(g, node, reals)], results)


def _round_by_sum(g: Builder, node: Node, reals: frozenset[Value]) -> Iterator[Node]:
    """Yield the nodes in place of a Round of one of `reals`, which are float32."""
    if node.op_type != "Round" or reals.isdisjoint(node.present):
        yield node
        return
    whole, total = g.scalar(_WHOLE, DType.FLOAT32), Value()
    yield Node("Add", (*node.inputs, whole), (total,), {})
    yield Node("Sub", (total, whole), node.outputs, {})
