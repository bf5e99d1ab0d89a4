"""Make the scales of constants positive: a negative scale and its integers change their signs.

A file may have scales below 0, which the kernels multiply by as by any other (QuantizeMultiplier).
ONNX's QuantizeLinear needs positive scales. The real numbers stay the same if the scale, the zero
point and the integers of a channel are negated. The smallest integer of a signed type has no
opposite. A bias is added to the accumulators of its channel, so it is negated, too: its own scale,
which no kernel reads, does not matter.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError, collect_errors
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.quantization.declarations import Product
from tflite2onnx.tensor import Array, Quantization, Tensor

Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]
_NONE: Flags = np.empty(0, np.bool_)


def flip_negative_scales(graph: Graph) -> Graph:
    """Return the graph with positive scales of all constants.

    Raises:
        UnsupportedOperators: an integer of a channel with a negative scale has no opposite.
    """
    negative = {t for t in graph.tensors if _find_negative(t).size}
    if not negative:
        return graph
    changed: dict[Op, Op] = {}
    with collect_errors() as errors:
        for op in graph.walk_ops():
            if not negative.isdisjoint(op.inputs):
                with errors.at(op.place):
                    changed[op] = _flip_inputs(op)
    return graph.rewrite(lambda op: [changed.get(op, op)])


def _find_negative(tensor: Tensor) -> Flags:
    """Return which scales of a constant are negative, [scales]; empty if no scale is."""
    own = tensor.quantization
    if not own or not tensor.has_data or own.block_size:  # whose scales the reader checks
        return _NONE
    return own.scale < 0 if own.scale.min(initial=0) < 0 else _NONE


def _flip_inputs(op: Op) -> Op:
    flags = [_find_negative(op.operand(i)) for i in range(len(op.inputs))]
    inputs = [
        _flip(t, t.quantization, flag) if t and t.quantization and flag.size else t
        for t, flag in zip(op.inputs, flags, strict=True)
    ]
    declared = find_operator(op).quantization
    if isinstance(declared, Product):
        _, weights, bias = declared.operands
        tensor, flag = inputs[bias] if bias < len(inputs) else None, flags[weights]
        if tensor and flag.size:
            if not tensor.has_data:
                raise OperatorError(f"{tensor.name}, the bias of negative scales, must be constant")
            inputs[bias] = replace(tensor, data=_negate(tensor, flag))
    return replace(op, inputs=tuple(inputs))


def _flip(tensor: Tensor, old: Quantization, flag: Flags) -> Tensor:
    """Return a constant with positive scales."""
    zero_point = np.where(flag, -old.zero_point, old.zero_point)
    shape = [1] * tensor.rank
    if old.per_axis:
        shape[old.axis] = -1
    data = _negate(tensor, flag.reshape(shape) if tensor.rank else flag[0])
    return replace(tensor, data=data, quantization=old.with_scale(abs(old.scale), zero_point))


def _negate(tensor: Tensor, flag: Flags) -> Array:
    """Return the integers of a constant, negated where the flag is set."""
    data = np.asarray(tensor.data)
    low = -(1 << tensor.dtype.bits - 1)
    if data.dtype.kind == "u" or ((data == low) & flag).any():
        raise OperatorError(
            f"{tensor.name} has negative scales, so its integers must be signed and greater than"
            f" {low}, which has no opposite in {tensor.dtype.label}"
        )
    return np.where(flag, -data, data)
