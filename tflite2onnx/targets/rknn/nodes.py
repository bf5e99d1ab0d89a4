"""Weights with a zero point beside the middle of their type, which RKNN keeps as they are.

RKNN reads weights whose zero point is the middle (0 for int8, 128 for uint8) as symmetric ones. Its
range for them reaches from -128 to 128 steps, which it divides into 127 steps at each side: the
weights are rounded again, to multiples of 128/127 of their scale, and change by up to half a step.
With another zero point they are not (tests/targets/rknn).
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.emit import keep_nodes
from tflite2onnx.tensor import DType

_MIDDLES = {DType.INT8: 0, DType.UINT8: 128}
_LOW, _HIGH = -128, 127  # steps around the middle


def rewrite_nodes(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> tuple[tuple[Node, ...], Collection[Value]]:
    """Return the nodes of the main graph; none of their values changes its type."""
    return keep_nodes(g, [*_move_zero_points(g, eliminate_dead_nodes(nodes, results))], results)


def _move_zero_points(g: Builder, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes; weights that begin or end at the middle's extremes move by a step.

    Weights that have both extremes keep their zero point: no other one has room for them.
    """
    made: dict[tuple[Value | None, ...], tuple[Value, Value]] = {}
    for node in nodes:
        x, *rest = node.inputs if node.op_type == "DequantizeLinear" else (None,)
        zero = rest[1] if len(rest) > 1 else None
        middle = _MIDDLES.get(x.dtype) if x and x.dtype else None
        if x is None or x.data is None or not x.data.size or middle is None:
            yield node
            continue
        zeros = np.zeros((), np.int64) if zero is None or zero.data is None else zero.data
        steps = x.data.astype(np.int16) - middle
        low, high = int(steps.min()), int(steps.max())
        if (zeros != middle).any() or (low == _LOW and high == _HIGH):
            yield node
            continue
        place = 129 if low == _LOW else 127
        if (x, zero) not in made:
            moved = (steps + place).astype(np.uint8)
            point = np.full(zeros.shape, place, np.uint8)
            made[x, zero] = (
                g.make_separate_constant(moved, DType.UINT8, x.name),
                g.constant(point, DType.UINT8),
            )
        weights, point_value = made[x, zero]
        yield node._replace(inputs=(weights, rest[0], point_value))
