"""Tanh of 8 bits as Sigmoid, of which ONNX Runtime has a kernel of integers.

ONNX Runtime joins DequantizeLinear, Sigmoid and QuantizeLinear to one node, but not those around
Tanh. tanh(x) is 2 sigmoid(2x) - 1, so that the integers of tanh in steps of 1/128 are those of
sigmoid(2x) in steps of 1/256. The results are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import nan

import numpy as np

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.tensor import DType

_STEPS = 128  # of tanh from 0 to 1, in TFLite
_BYTES = (DType.INT8, DType.UINT8)


def join_tanh(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes with Sigmoid in place of Tanh between integers of 8 bits."""
    # Symmetric integers have no zero points.
    if g.plan.symmetric or not any(node.op_type == "Tanh" for node in nodes):
        return tuple(nodes)
    makers: dict[Value | None, Node] = {
        node.outputs[0]: node for node in nodes if node.op_type == "DequantizeLinear"
    }
    readers = {node.inputs[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    uses = Counter([value for node in nodes for value in node.inputs] + [*results])
    changed: list[Node] = []
    stored: dict[Value, Node] = {}  # the QuantizeLinear of sigmoids, by output
    for node in nodes:
        y = node.outputs[0]
        before, after = makers.get(node.inputs[0]) if node.inputs[:1] else None, readers.get(y)
        sigmoid = None
        if node.op_type == "Tanh" and before and after and uses[y] == 1:
            sigmoid = _store_sigmoid(g, before, after)
        if sigmoid is None or before is None:
            changed.append(stored.get(y, node))
            continue
        stored[sigmoid.outputs[0]] = sigmoid
        x, scale, *zero = before.inputs
        twice, real = g.scalar(2 * _read_number(scale), DType.FLOAT32), Value()
        changed += [
            before._replace(inputs=(x, twice, *zero), outputs=(real,)),
            node._replace(op_type="Sigmoid", inputs=(real,)),
        ]
    return tuple(changed)


def _store_sigmoid(g: Builder, before: Node, after: Node) -> Node | None:
    """Return the QuantizeLinear of the sigmoid in place of that of tanh, None if there is none."""
    x, zero = before.inputs[0], after.inputs[2] if len(after.inputs) > 2 else None
    dtype = DType.INT8 if zero and zero.dtype is DType.INT8 else DType.UINT8
    least = -_STEPS if dtype is DType.INT8 else 0
    fits = (
        x is not None
        and (g.types[x][0] if x in g.types else x.dtype) in _BYTES
        and _read_number(before.inputs[1]) > 0
        and _read_number(after.inputs[1]) * _STEPS == 1
        and _read_number(zero) == least + _STEPS
    )
    if not fits:
        return None
    # Zero points of int8 are separate constants, as in `Builder.quantize`.
    constant = g.make_separate_constant if dtype is DType.INT8 else g.constant
    point = constant(np.array(least, dtype.numpy), dtype)
    half_step = g.scalar(0.5 / _STEPS, DType.FLOAT32)
    return after._replace(inputs=(after.inputs[0], half_step, point))


def _read_number(constant: Value | None) -> float:
    """Return the only element of a constant, NaN if there is none."""
    data = None if constant is None else constant.data
    return nan if data is None or data.size != 1 else float(data.item())
