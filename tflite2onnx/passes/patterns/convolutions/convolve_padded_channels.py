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
from tflite2onnx.passes.patterns.matching import find_images, is_float
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Tensor

_IMAGE = 4  # axes
_MOST = 1 << 18  # elements of the filters


def convolve_padded_channels(graph: Graph) -> Graph:
    """Return the graph with convolutions in place of PAD of channels."""
    images, ends = find_images(graph), {*graph.every_output()}

    def change(op: Op) -> list[Op]:
        pads = op.is_builtin("PAD") and ends.isdisjoint(op.outputs)
        return _replace_pad(op, images) if pads else [op]

    return graph.rewrite(change)


def _replace_pad(op: Op, images: set[Tensor]) -> list[Op]:
    """Return the convolution; PAD itself unless the conditions hold."""
    match op.inputs, op.outputs:
        case [[Tensor(rank=4) as x, Tensor(data=np.ndarray() as pads)], [Tensor(rank=4) as y]] if (
            x in images and is_float(x) and is_float(y) and pads.shape == (_IMAGE, 2)
        ):
            before, after = (int(n) for n in pads[-1])
        case _:
            return [op]
    if np.any(pads[:-1]) or min(before, after) < 0 or before + after == 0:
        return [op]
    channels = x.shape[-1]
    if (before + channels + after) * channels > _MOST:
        return [op]
    filters = np.zeros((before + channels + after, channels), np.float32)
    filters[before : before + channels] = np.eye(channels)
    rw = Rewriter(op)
    rw.convolve("CONV_2D", x, filters[:, None, None, :], output=y)
    return rw.ops
