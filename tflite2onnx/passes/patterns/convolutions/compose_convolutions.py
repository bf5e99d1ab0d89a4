"""Two convolutions with 1x1 filters become one, if that is expected to be faster.

    W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)

An inverted bottleneck (MobileNet v2) ends in a convolution without an activation, and the next one
begins with a convolution. If few channels are between them, one convolution multiplies more, but
no image of few channels is stored and read. With AVX-512, ONNX Runtime reads 8 channels outside its
blocks of 16, and the two convolutions take 1.4 times as long as the one. Two are replaced if

1. both are CONV_2D with filters of one pixel and strides of 1, the first applies no activation, and
   only the second reads its output;
2. images, filters and biases are float32, filters and biases constant;
3. the times that `cost` expects of the graph are shorter.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.operands import find_producer, is_float
from tflite2onnx.passes.patterns.convolutions.cost import keep_faster
from tflite2onnx.passes.rewriter import make_constant
from tflite2onnx.tensor import Array, Tensor

_MOST = 1 << 18  # elements of the filters


def compose_convolutions(graph: Graph) -> Graph:
    """Return the graph with one convolution in place of two where that is faster."""
    return keep_faster(
        graph, [partial(_replace_two, op) for op in graph.ops if _compose(op, graph)]
    )


def _replace_two(last: Op, graph: Graph) -> Graph:
    both = _compose(last, graph)  # the convolution before it may be another one by now
    if not both:
        return graph
    ops = tuple(both if op is last else op for op in graph.ops)
    return eliminate_dead_operators(replace(graph, ops=ops))


def _compose(last: Op, graph: Graph) -> Op | None:
    """Return the convolution that replaces another and the one before it: conditions 1 and 2."""
    if not (second := _read_filters(last)):
        return None
    before = find_producer(last.operand(0), graph, "CONV_2D")
    if before not in graph.ops or before.activation != "NONE":
        return None
    if not (first := _read_filters(before)):
        return None
    filters, bias = second[0] @ first[0], second[0] @ first[1] + second[1]
    if filters.size > _MOST:
        return None
    x = before.inputs[0]
    (y,) = last.outputs
    data = filters[:, None, None, :].astype(np.float32), bias.astype(np.float32)
    names = f"{y.name}/filters", f"{y.name}/bias"
    return replace(
        last, inputs=(x, *(make_constant(*each, y) for each in zip(names, data, strict=True)))
    )


def _read_filters(op: Op) -> tuple[Array, Array] | None:
    """Return the matrix and the vector of a convolution with 1x1 filters, None for other ones."""
    if not op.is_builtin("CONV_2D") or (op.options.stride_h, op.options.stride_w) != (1, 1):
        return None
    match op.inputs:
        case [
            Tensor() as x,
            Tensor(data=np.ndarray() as filters) as w,
            Tensor(data=np.ndarray() as b),
        ]:
            fits = is_float(x) and is_float(w) and filters.shape[1:] == (1, 1, x.shape[-1])
        case _:
            return None
    if not fits or b.shape != filters.shape[:1]:
        return None
    return filters[:, 0, 0, :].astype(np.float64), b.astype(np.float64)
