"""Make the scales of constants positive: a negative scale and its integers change their signs.

A file may have scales below 0, which the kernels multiply by as by any other (QuantizeMultiplier).
ONNX's QuantizeLinear needs positive scales. The real numbers stay the same if the scale, the zero
point and the integers of a channel are negated. The smallest integer of a signed type has no
opposite. A bias is added to the accumulators of its channel, so it is negated, too: its own scale,
which no kernel reads, does not matter.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tflite2onnx.errors import OperatorError, collect_errors
from tflite2onnx.graph import ABSENT, Graph, Op
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
    negative = {t: flag for t in graph.tensors if (flag := _find_negative(t)).size}
    if not negative:
        return graph
    changed: dict[Op, Op] = {}
    with collect_errors() as errors:
        for op in graph.walk_ops():
            if not negative.keys().isdisjoint(op.inputs):
                with errors.at(op.place):
                    changed[op] = _flip_inputs(op, negative)
    return graph.rewrite(lambda op: [changed.get(op, op)])


def _find_negative(tensor: Tensor) -> Flags:
    """Return which scales of a constant are negative, [scales]; empty if no scale is."""
    own = tensor.quantization
    if not own or not tensor.has_data or own.block_size:  # whose scales the reader checks
        return _NONE
    return own.scale < 0 if own.scale.min(initial=0) < 0 else _NONE


def _flip_inputs(op: Op, negative: Mapping[Tensor, Flags]) -> Op:
    own = {t: t.quantization for t in op.present if t in negative}
    flipped = {t: _flip(t, scales, negative[t]) for t, scales in own.items() if scales}
    declared = find_operator(op).quantization
    if isinstance(declared, Product) and op.operand(declared.weights) in negative:
        bias = op.operand(declared.bias)
        if bias is not ABSENT:
            if not bias.has_data:
                raise OperatorError(f"{bias.name}, the bias of negative scales, must be constant")
            known = flipped.get(bias, bias)
            data = _negate(known, negative[op.operand(declared.weights)])
            flipped[bias] = replace(known, data=data)
    return op.with_inputs(flipped)


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
