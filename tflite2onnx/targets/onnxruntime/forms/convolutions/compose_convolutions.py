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

from dataclasses import replace
from functools import partial

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, GraphMatcher, Pattern
from tflite2onnx.passes.rewriter import make_constant
from tflite2onnx.passes.simplify import eliminate_dead_operators
from tflite2onnx.targets.onnxruntime.costs import keep_faster

_MOST = 1 << 18  # elements of the filters
_STEP = {"stride_h": 1, "stride_w": 1}
_FIRST: Pattern = ("CONV_2D", "x", "w1#", "b1#", _STEP)
_BOTH = Activated(("CONV_2D", _FIRST, "w2#", "b2#", _STEP))


def compose_convolutions(graph: Graph) -> Graph:
    """Return the graph with one convolution in place of two where that is faster."""
    changes = [partial(_replace_two, op) for op in graph.ops if _compose(op, graph)]
    return keep_faster("one convolution in place of two", graph, changes)


def _replace_two(last: Op, graph: Graph) -> Graph:
    both = _compose(last, graph)  # the convolution before it may be another one by now
    if not both:
        return graph
    return eliminate_dead_operators(graph.rewrite(lambda op: [both if op is last else op]))


def _compose(last: Op, graph: Graph) -> Op | None:
    """Return the convolution that replaces another and the one before it: conditions 1 and 2."""
    for found in GraphMatcher(graph).find_all(last, _BOTH):
        x, y = found.x, found.output
        w1, b1, w2, b2 = (found.tensors[name] for name in ("w1#", "b1#", "w2#", "b2#"))
        plain = w1.shape[1:] == (1, 1, x.shape[-1]) and w2.shape[1:] == (1, 1, w1.shape[0])
        if not (plain and is_float(w1) and is_float(w2)) or w2.shape[0] * x.shape[-1] > _MOST:
            continue
        first, second = (w.values[:, 0, 0, :].astype(np.float64) for w in (w1, w2))
        filters = (second @ first)[:, None, None, :].astype(np.float32)
        bias = (second @ b1.values.astype(np.float64) + b2.values).astype(np.float32)
        filters_of_both = make_constant(f"{y.name}/filters", filters, y)
        return replace(last, inputs=(x, filters_of_both, make_constant(f"{y.name}/bias", bias, y)))
    return None
