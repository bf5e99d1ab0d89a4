"""The fixed-point arithmetic of XNNPACK, as scales in which ONNX's kernels make the same integers.

XNNPACK, which computes in LiteRT by default, multiplies stored integers by the quotient of two
scales. It rounds the quotient to some bits and the result once, halves up. A product of few bits
is either a half or far from it, so that a slope is moved by a slack that affects halves alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import DType, Quantization, Tensor

NARROW = (DType.INT8, DType.UINT8)
_BITS = 8  # behind the point in the slopes of a function of one input
# Results of 8 bits are 2^-8 apart. The slack moves those below 2^8 by 2^-10 at most, and halves by
# 2^-19 or more, which is much more than float32 loses.
_SLACK = 2.0**-18
# What XNNPACK takes for a slope; else a built-in kernel runs, or another one of XNNPACK.
_LARGEST_SLOPE = 128


class Slopes(NamedTuple):
    """A function of an integer: times `scale` what is not negative, times `scale * alpha` what is.

    `scale` is in the place of the input's.
    """

    scale: Quantization
    alpha: float


def slopes(x: Tensor, y: Tensor, alpha: float = 1) -> Slopes | None:
    """Return how LEAKY_RELU's kernel computes, or that of QUANTIZE if `alpha` is 1.

    None where XNNPACK has no such kernel: of other types, and where a slope is too steep or too
    flat.
    """
    given, wanted = x.quantization, y.quantization
    if x.dtype is not y.dtype or not are_narrow(x, y) or given is None or wanted is None:
        return None
    steep = given.scale[0] / wanted.scale[0]
    flat = steep * np.float32(alpha)
    least = 2.0**-_BITS
    if not least <= steep <= _LARGEST_SLOPE or not least <= abs(flat) <= _LARGEST_SLOPE:
        return None
    above, below = (np.rint(slope * 2**_BITS) / 2**_BITS for slope in (float(steep), float(flat)))
    # Halves are rounded up: those above 0 away from it, those below 0 towards it.
    above *= 1 + _SLACK
    below *= 1 - _SLACK if below > 0 else 1 + _SLACK
    scale = np.array([above * wanted.scale[0]], np.float32)
    return Slopes(replace(given, scale=scale), below / above)


def reciprocal(y: Tensor) -> np.float32 | None:
    """Return what QUANTIZE's kernel multiplies real numbers by to have steps of an output.

    ONNX divides by the scale, which is the same for a power of two; then it is None, and for other
    types.
    """
    if not are_narrow(y) or y.quantization is None:
        return None
    scale = y.quantization.scale[0]
    return None if np.frexp(scale)[0] == 0.5 else np.float32(1) / scale


def are_narrow(*tensors: Tensor) -> bool:
    """Return whether tensors have 8 bits and one scale each."""
    return all(
        t.dtype in NARROW and is_quantized(t) and not (t.quantization and t.quantization.per_axis)
        for t in tensors
    )
