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
from tflite2onnx.passes.operands import find_images
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter


def _make_convolutions(found: Match) -> list[Op]:
    x, y, slopes = found.x, found.output, found.tensors["slope#"]
    each = slopes.shape[-1:] == x.shape[-1:] == (slopes.elements,)
    if not each or x not in found.analyze(find_images):
        return []
    bend = 1 - slopes.values.astype(np.float32).reshape(1, 1, 1, -1)
    rw, code = Rewriter(found.last), "DEPTHWISE_CONV_2D"
    below = rw.convolve(code, x, -np.abs(bend), like=y, name="bend", activation="RELU")
    signed = rw.convolve(code, below, np.sign(bend), like=y, name="signed")
    rw.op("ADD", signed, x, output=y, fused_activation_function="NONE")
    return rw.ops


split_prelu = Rules(
    Rule(
        "PRELU behind convolutions",
        "DEPTHWISE_CONV_2D, ADD",
        ("PRELU", "x", "slope#"),
        _make_convolutions,
    ),
)
