"""PRELU of an image becomes two depthwise convolutions and a sum, for ONNX Runtime.

    prelu(x) = x + sign(1 - a) relu(-|1 - a| x)

ONNX Runtime's PRelu takes many times as long as a convolution with 1x1 kernels, and leaves the
blocked layout in which convolutions compute. ONNX Runtime fuses the activation with the first
convolution, and the sum with the second. MediaPipe's network of face landmarks, with 38 PRELU,
takes 0.4 of the time. A PRELU is replaced if

1. its input and output are float32 images of one shape;
2. the input depends on a convolution by operators that keep the order of the axes. Elsewhere a
   PRELU costs less than two convolutions that reorder their inputs;
3. the slopes a are constant, one for each channel.

Where x is not negative, the result is exact. Elsewhere both terms are rounded, so that the error is
at most the rounding of x or of a x, whichever is larger: 1e-7 of the range for any slope. Minus
infinity gives NaN unless the slope is above 1, and plus infinity gives NaN if the slope is 1. The
form relu(x) - sign(a) relu(-|a| x) has neither case, but a node more: face landmarks take 1.13
times as long.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.patterns.matching import find_images, is_float
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Array, Tensor


def split_prelu(graph: Graph) -> Graph:
    """Return the graph with depthwise convolutions in place of PRELU."""
    images = find_images(graph)
    return graph.rewrite(lambda op: _split_op(op, images) if op.is_builtin("PRELU") else [op])


def _split_op(op: Op, images: set[Tensor]) -> list[Op]:
    """Return the operators that replace PRELU; PRELU itself unless the conditions hold."""
    match op.inputs, op.outputs:
        case [[Tensor(rank=4) as x, Tensor() as alpha], [Tensor() as y]] if (
            x in images and is_float(x) and is_float(y) and x.sizes == y.sizes
        ):
            slopes = _read_slopes(x, alpha)
        case _:
            return [op]
    if slopes is None:
        return [op]
    rw = Rewriter(op)
    bend = _scale_channels(rw, x, -np.abs(1 - slopes), "bend", "RELU")
    bend = _scale_channels(rw, bend, np.sign(1 - slopes), "signed")
    rw.op("ADD", bend, x, output=y, fused_activation_function="NONE")
    return rw.ops


def _read_slopes(x: Tensor, alpha: Tensor) -> Array | None:
    """Return one slope for each channel, None if condition 3 does not hold."""
    channels = x.shape[-1]
    if alpha.data is None or not is_float(alpha) or alpha.shape[-1:] != (channels,):
        return None
    if alpha.elements != channels:
        return None
    return alpha.data.astype(np.float32).reshape(1, 1, 1, channels)


def _scale_channels(
    rw: Rewriter, x: Tensor, factors: Array, name: str, activation: str = "NONE"
) -> Tensor:
    """Add a depthwise convolution that multiplies each channel by a factor."""
    y = rw.source.outputs[0]
    return rw.convolve("DEPTHWISE_CONV_2D", x, factors, like=y, name=name, activation=activation)
