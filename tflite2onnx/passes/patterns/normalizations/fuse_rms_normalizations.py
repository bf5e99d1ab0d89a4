"""Recognise normalizations by the root of the mean square (RMS) that a model spells out.

    y = x / sqrt(mean(x * x) + epsilon) * scale

Language models contain them. They are replaced by RMS_NORMALIZATION, which no file contains, if

1. x * x is MUL, SQUARE or POW; its mean is MEAN, or SUM multiplied by or divided by the number of
   elements; the root is RSQRT or SQRT. RESHAPE may stand between these operators;
2. the mean is that along the last axis, of fixed size, and has the shape of x but for a last size
   of 1, at the root at the latest;
3. all tensors are float32; epsilon is one number;
4. no other operator reads the tensors between the operators. A product by a constant along the last
   axis behind them, or of the inverse of the root, is the scale.

ONNX Runtime makes one node of the nodes that RMS_NORMALIZATION becomes, and takes 0.4 to 0.6 of the
time. From opset 23 on it is one node, as fast.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import Matcher, is_float
from tflite2onnx.passes.patterns.normalizations.fuse_normalizations import spread_along_last_axis
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import DType, Tensor

_CLOSE = 1e-6  # relative difference of numbers
_BINARY = 2  # inputs
_SQUARE = 2  # the power


class _MeanSquare(NamedTuple):
    """The mean of the squares of x, and the number that is added to it."""

    x: Tensor
    epsilon: float


def fuse_rms_normalizations(graph: Graph) -> Graph:
    """Return the graph with RMS_NORMALIZATION in place of the operators that compute it."""
    if graph.codes.isdisjoint(("MEAN", "SUM")):
        return graph
    matcher = Matcher(graph)
    found: dict[Op, Op] = {}
    for op in graph.every_op():
        if op.is_builtin("RSQRT", "SQRT") and op.outputs:
            found.update(_find_normalization(op, matcher))
    return graph.rewrite(lambda op: (found.get(op, op),)) if found else graph


def _find_normalization(root: Op, matcher: Matcher) -> dict[Op, Op]:
    """Return RMS_NORMALIZATION by the operator that it replaces; empty if there is none."""
    inner = _find_mean_square(root, matcher)
    if inner is None or root.outputs[0].sizes != (*inner.x.sizes[:-1], 1):
        return {}
    x, code = inner.x, "MUL" if root.code == "RSQRT" else "DIV"
    last, other = _find_next_product(root, code, matcher)
    scale = spread_along_last_axis(other, x) if code == "MUL" else None
    if last is not None and scale is not None:
        last, other = _find_next_product(last, code, matcher)
    if last is None or other is not x:
        return {}
    if scale is None:
        after, other = _find_next_product(last, "MUL", matcher)
        scale = spread_along_last_axis(other, x)
        last = last if after is None or scale is None else after
    scale = scale or _make_ones(x)
    if scale is None or not is_float(last.outputs[0]) or last.outputs[0].sizes != x.sizes:
        return {}
    options = {"epsilon": inner.epsilon, "fused_activation_function": last.activation}
    return {last: as_builtin(last, "RMS_NORMALIZATION", x, scale, **options)}


def _make_ones(x: Tensor) -> Tensor | None:
    one = Tensor("one", (1,), DType.FLOAT32, np.ones(1, np.float32))
    return spread_along_last_axis(one, x)


def _find_mean_square(root: Op, matcher: Matcher) -> _MeanSquare | None:
    """Return the mean square whose root is computed, None unless conditions 1 to 3 hold."""
    addition = _find_producer(root.inputs[0], matcher)
    mean, epsilon = _split_constant(addition, "ADD")
    reduction, share = _find_producer(mean, matcher), 1.0
    if reduction is not None and reduction.is_builtin("MUL", "DIV"):
        total, number = _split_constant(reduction, reduction.code)
        share = 1 / number if number and reduction.code == "DIV" else number or 0
        reduction = _find_producer(total, matcher)
    if reduction is None or epsilon is None or not reduction.is_builtin("MEAN", "SUM"):
        return None
    squares, axes = (*reduction.inputs, None)[:_BINARY]
    x = _find_squared(matcher.graph.producers.get(squares) if squares else None)
    if x is None or axes is None or axes.data is None or not x.rank or not x.elements:
        return None
    expected = 1.0 if reduction.code == "MEAN" else 1 / x.shape[-1]
    last_axis = [int(axis) % x.rank for axis in axes.data.flat] == [x.rank - 1]
    fits = last_axis and is_float(x) and abs(share - expected) <= _CLOSE * expected
    once = matcher.graph.readers.find_only_reader(squares) is reduction
    return _MeanSquare(x, epsilon) if fits and once else None


def _find_producer(tensor: Tensor | None, matcher: Matcher) -> Op | None:
    """Return the operator that computes a tensor before any RESHAPE; no other operator reads it."""
    op = None
    while tensor is not None and matcher.graph.readers.find_only_reader(tensor) is not None:
        op = matcher.graph.producers.get(tensor)
        if op is None or not op.is_builtin("RESHAPE"):
            return op
        tensor = op.inputs[0]
    return None


def _split_constant(op: Op | None, code: str) -> tuple[Tensor | None, float | None]:
    """Return the operand of an operator with one number, and the number; None if it has none."""
    if op is None or not op.is_builtin(code) or op.activation != "NONE":
        return None, None
    x, number = op.inputs
    if code in ("ADD", "MUL") and x is not None and x.data is not None:
        x, number = number, x
    if number is None or number.data is None or number.data.size != 1 or not is_float(number):
        return None, None
    return x, float(number.data.reshape(()))


def _find_squared(op: Op | None) -> Tensor | None:
    """Return the tensor whose square an operator computes, None if it computes something else."""
    if op is None or op.activation != "NONE":
        return None
    if op.is_builtin("POW"):
        x, power = _split_constant(op, "POW")
        return x if power == _SQUARE else None
    squares = op.is_builtin("SQUARE") or (op.is_builtin("MUL") and op.inputs[0] is op.inputs[1])
    return op.inputs[0] if squares else None


def _find_next_product(op: Op, code: str, matcher: Matcher) -> tuple[Op | None, Tensor | None]:
    """Return the only reader of an operator's output if it has a code, and its other operand.

    The output is the second operand of DIV.
    """
    tensor = op.outputs[0]
    reader = matcher.graph.readers.find_only_reader(tensor) if op.activation == "NONE" else None
    if reader is None or not reader.is_builtin(code) or len(reader.inputs) != _BINARY:
        return None, None
    first, second = reader.inputs
    if second is tensor:
        return reader, first
    return (reader, second) if code == "MUL" else (None, None)
