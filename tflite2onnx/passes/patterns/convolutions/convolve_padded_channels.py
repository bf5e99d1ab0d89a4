"""PAD of the channels of an image becomes a convolution with 1x1 filters, for ONNX Runtime.

The filter of an output channel has a single 1, at the input channel that it copies; the filters of
padded channels are 0. A residual network that grows its channels by zeros (BlazeFace, face
landmarks) would leave ONNX Runtime's blocked layout at each Pad, and with it the sum behind Pad and
all sums that depend on it. The convolution stays in the layout, and ONNX Runtime fuses the sum with
it. The network of face landmarks takes 0.75 of the time. A PAD is replaced if

1. its input and output are float32 images, it pads the channels only, by constants that are not
   negative, with zeros;
2. its input depends on a convolution by operators that keep the order of the axes, and an operator
   reads its output;
3. the filters have at most 2^18 elements: a tiny file could otherwise need any amount of memory.

The copies are exact; an infinite input gives NaN in the other channels.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import find_images, is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, apply_rules
from tflite2onnx.passes.rewriter import Rewriter

_IMAGE = 4  # axes
_MOST = 1 << 18  # elements of the filters


def convolve_padded_channels(graph: Graph) -> Graph:
    """Return the graph with convolutions in place of PAD of channels."""
    return apply_rules(RULES, graph)


def _make_convolution(found: Match) -> list[Op]:
    """Return the convolution, nothing unless the conditions hold."""
    x, pads, y = found.tensors["x"], found.tensors["pads#"].values, found.last.outputs[0]
    if x not in found.analyze(find_images) or not is_float(x) or y.rank != _IMAGE:
        return []
    if y in {*found.graph.every_output()} or pads.shape != (_IMAGE, 2):
        return []
    before, after = (int(n) for n in pads[-1])
    if np.any(pads[:-1]) or min(before, after) < 0 or before + after == 0:
        return []
    channels = x.shape[-1]
    if (before + channels + after) * channels > _MOST:
        return []
    filters = np.zeros((before + channels + after, channels), np.float32)
    filters[before : before + channels] = np.eye(channels)
    rw = Rewriter(found.last)
    rw.convolve("CONV_2D", x, filters[:, None, None, :], output=y)
    return rw.ops


RULES = (Rule("PAD of channels", "CONV_2D", ("PAD", "x", "pads#"), _make_convolution),)
