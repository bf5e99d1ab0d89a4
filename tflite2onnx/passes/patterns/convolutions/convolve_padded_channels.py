"""PAD of the channels of an image becomes filters of zeros, for ONNX Runtime.

A residual network that grows its channels by zeros (BlazeFace, face landmarks) would leave ONNX
Runtime's blocked layout at each Pad, and with it the sum behind Pad and all sums that depend on it.
A convolution with 1x1 filters stays in the layout, and ONNX Runtime fuses the sum with it. The
filter of an output channel has a single 1, at the input channel that it copies; the filters of
padded channels are 0. The network of face landmarks takes 0.75 of the time. A PAD is replaced if

1. its input and output are float32 images, it pads the channels only, by constants that are not
   negative, with zeros;
2. its input depends on a convolution by operators that keep the order of the axes, and an operator
   reads its output;
3. the filters have at most 2^18 elements: a tiny file could otherwise need any amount of memory.

That convolution takes as long as a layer of the network, and in blocks of channels the padded ones
often take no time at all: 24, 28 and 32 channels are two blocks of 16. It is left out, and its
input is computed with all channels, if

4. it pads behind the channels, and the channels of its input, and of all images that correspond,
   may be padded (`pad_channels`): CONV_2D and operators by channel compute and read them;
5. the times that `cost` expects of the graph are shorter: large images first, one by one.

The short-range face detection takes 0.79 of the time with 4 and 5, 0.89 with AVX2. The copies are
exact; an infinite input gives NaN in the other channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import find_images, has_unit_steps, is_float
from tflite2onnx.passes.patterns.convolutions.cost import keep_faster
from tflite2onnx.passes.patterns.convolutions.pad_channels import Channels
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter

_MOST = 1 << 18  # elements of the filters


def convolve_padded_channels(graph: Graph) -> Graph:
    """Return the graph with filters of zeros in place of PAD of channels."""
    graph = _convolve_all(graph)
    copies = [op.outputs[0] for op in graph.ops if _copies_channels(op)]
    copies.sort(key=lambda copy: -copy.elements)
    join_channels = lru_cache(maxsize=1)(Channels)
    return keep_faster(graph, [partial(_leave_out, copy.name, join_channels) for copy in copies])


def _make_convolution(found: Match) -> list[Op]:
    x, y = found.x, found.output
    if x not in found.analyze(find_images) or y in found.graph.walk_outputs():
        return []
    *others, before, after = found.list_integers("pads#")
    if any(others) or min(before, after) < 0 or x.shape == y.shape:
        return []
    if y.shape[-1] * x.shape[-1] > _MOST:
        return []
    filters = np.eye(y.shape[-1], x.shape[-1], -before, np.float32)
    rw = Rewriter(found.last)
    rw.convolve("CONV_2D", x, filters[:, None, None, :], output=y)
    return rw.ops


def _copies_channels(op: Op) -> bool:
    """Return whether the operator is a convolution that pads behind the channels."""
    alone = op.is_builtin("CONV_2D") and len(op.present) == 2 and op.activation == "NONE"
    if not alone or not has_unit_steps(op) or not is_float(op.operand(1)):
        return False
    filters = op.operand(1).values
    eye = np.eye(len(filters), filters.shape[-1])
    return filters.shape[1:3] == (1, 1) and np.array_equal(filters[:, 0, 0, :], eye)


def _leave_out(name: str, join_channels: Callable[[Graph], Channels], graph: Graph) -> Graph:
    """Return the graph without the convolution that pads an image's channels.

    It is the graph itself if condition 4 does not hold.
    """
    outputs = {*graph.walk_outputs()}
    for copy in filter(_copies_channels, graph.ops):
        (y,), channels = copy.outputs, join_channels(graph)
        root = channels.find(copy.operand(0))
        if y.name == name and y not in outputs and root not in channels.fixed:
            padded = channels.pad({root: y.shape[-1]}, graph)
            source = padded.producers[y].operand(0)
            ops = tuple(op for op in padded.ops if y not in op.outputs)
            return replace(padded, ops=ops).replace_tensors({y: source})
    return graph


_convolve_all = Rules(Rule("PAD of channels", "CONV_2D", ("PAD", "x", "pads#"), _make_convolution))
