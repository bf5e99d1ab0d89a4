"""Tensors of 8 bits with a zero point beside the middle of their type, as RKNN needs them.

RKNN reads a tensor whose zero point is the middle (0 for int8, 128 for uint8) as a symmetric one,
of -128 to 128 steps, which it divides into 127 steps at each side: weights are rounded again, and
data are read in 128/127 of their scale. With another zero point they are not (tests/targets/rknn).
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.emit import keep_nodes
from tflite2onnx.targets.rules import MIDDLES, QDQ
from tflite2onnx.tensor import DType

_LOW, _HIGH = -128, 127  # steps around the middle


def rewrite_nodes(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> tuple[tuple[Node, ...], Collection[Value]]:
    """Return the nodes of the main graph; none of their values changes its type."""
    live = [*_move_weights(g, eliminate_dead_nodes(nodes, results))]
    return keep_nodes(g, [*_move_data(g, live, results)], results)


def _move_weights(g: Builder, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes; weights with both extremes of their type have no room, and stay."""
    made: dict[tuple[Value | None, ...], tuple[Value, Value]] = {}
    for node in nodes:
        x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if x is None or x.data is None or not _is_in_the_middle(node):
            yield node
            continue
        scale, zero = node.present[1:]
        steps = x.data.astype(np.int16) - MIDDLES[(zero.dtype or DType.INT8).label]
        low, high = int(steps.min(initial=0)), int(steps.max(initial=0))
        if low > _LOW or high < _HIGH:
            place = 129 if low == _LOW else 127
            if (x, zero) not in made:
                weights = g.make_separate_constant(
                    (steps + place).astype(np.uint8), DType.UINT8, x.name
                )
                shape = [] if zero.data is None else zero.data.shape
                made[x, zero] = weights, g.constant(np.full(shape, place, np.uint8), DType.UINT8)
            x, zero = made[x, zero]
        yield node._replace(inputs=(x, scale, zero))


def _move_data(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Iterator[Node]:
    """Yield the nodes; a tensor inside loses the lowest number of its type.

    Inputs and outputs keep the file's zero points.
    """
    quantized = {n.outputs[0] for n in nodes if n.op_type == "QuantizeLinear"} - {*results}
    for node in nodes:
        tensor = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
        if tensor not in quantized or not _is_in_the_middle(node):
            yield node
            continue
        x, scale, zero = node.present
        dtype = zero.dtype or DType.INT8
        yield node._replace(inputs=(x, scale, g.scalar(MIDDLES[dtype.label] - 1, dtype)))


def _is_in_the_middle(node: Node) -> bool:
    """Return whether a node quantizes or dequantizes with such zero points."""
    zero = node.present[2] if node.op_type in QDQ and node.inputs[2:] else None
    if zero is None or zero.data is None or zero.dtype is None:
        return False
    return bool(np.all(zero.data == MIDDLES.get(zero.dtype.label, -1)))
