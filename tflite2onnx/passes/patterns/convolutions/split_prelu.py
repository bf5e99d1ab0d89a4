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

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import find_images, is_float
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.tensor import Array, Tensor


def _make_convolutions(found: Match) -> list[Op]:
    x, slopes = found.x, found.tensors["slope#"]
    if x not in found.analyze(find_images) or not found.keeps_shape() or not is_float(slopes):
        return []
    if slopes.shape[-1:] != x.shape[-1:] or slopes.elements != x.shape[-1]:
        return []
    vector = slopes.values.astype(np.float32).reshape(1, 1, 1, -1)
    rw = Rewriter(found.last)
    bend = _scale_channels(rw, x, -np.abs(1 - vector), "bend", "RELU")
    bend = _scale_channels(rw, bend, np.sign(1 - vector), "signed")
    rw.op("ADD", bend, x, output=found.output, fused_activation_function="NONE")
    return rw.ops


def _scale_channels(
    rw: Rewriter, x: Tensor, factors: Array, name: str, activation: str = "NONE"
) -> Tensor:
    """Add a depthwise convolution that multiplies each channel by a factor."""
    y = rw.source.outputs[0]
    return rw.convolve("DEPTHWISE_CONV_2D", x, factors, like=y, name=name, activation=activation)


split_prelu = Rules(
    Rule(
        "PRELU behind convolutions",
        "DEPTHWISE_CONV_2D, ADD",
        ("PRELU", "x", "slope#"),
        _make_convolutions,
    ),
)
