"""Operators between convolutions get forms that ONNX Runtime computes in blocks of channels.

ONNX Runtime stores the images of float convolutions in blocks of channels, 16 with AVX-512 and 8
with AVX2. An operator that it has no kernel of blocks for takes an image out of the blocks and back
into them. Operators change if the plan stores their float32 images with channels first; elsewhere
the new forms take longer. An infinite number gives NaN in other channels that the same filters
read.

`convolve_padded_channels`: PAD of channels becomes a convolution with 1x1 filters. The filter of an
output channel has a single 1, at the input channel that it copies; the others are 0. The sum after
PAD, and all sums that depend on it, stay in the blocks: face landmarks take 0.75 of the time. PAD
pads with a positive number of zeros, and its output is no output of a graph.

`split_prelu`: prelu(x) = x + sign(1 - a) relu(-|1 - a| x), for constant slopes a of each channel,
becomes two depthwise convolutions and a sum, which ONNX Runtime fuses with relu and with each
other. The network of face landmarks, with 38 PRELU, takes 0.4 of the time. The result is exact
where x is not negative; elsewhere the error is at most the rounding of x or of a x, whichever is
larger. Minus infinity gives NaN unless the slope is above 1, and plus infinity gives NaN if the
slope is 1. The form relu(x) - sign(a) relu(-|a| x) has neither case, but a node more: face
landmarks take 1.13 times as long.

`merge_groups`: four groups of 4 channels, which ONNX Runtime computes one by one, become one of 16
by filters of zeros. Three convolutions of 32 groups (ResNeXt), each with one of 1x1 filters after
it, take 0.65 of the time with AVX-512, and 0.88 with AVX2. With AVX2, groups of 8 and of 24
channels as groups of 16 and 48 would take 1.11 and 1.6 times as long, and groups of 12 1.1 times.

`repeat_factors`: the factor or term of each channel that squeeze and excitation computes, an image
of one pixel, is resized to the other image, if height and width are known. With 7x7 to 56x56 pixels
the bottlenecks of MobileNet v3 take 0.86 to 0.97 of the time (one thread of an AMD EPYC, family
26). With 112x112 pixels of 96 channels, which are larger than a cache, they take longer: an image
has at most 2 MB.
"""

from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import CONVOLUTIONS, is_float
from tflite2onnx.passes.patterns.matching import Activated, Match, OneOf
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_constant, make_int32
from tflite2onnx.targets.onnxruntime.blocks import NOT_IN_BLOCKS, is_blocked
from tflite2onnx.targets.onnxruntime.costs import NEAR

_MOST_COPIED = 1 << 18  # elements of filters: a tiny file could otherwise need any amount of memory
_FLOAT = 4  # bytes
_MOST_REPEATED = 2 * NEAR  # bytes of an image; a larger one is written to memory, and read from it
_FEW, _BLOCK = 4, 16  # channels of a group, and of a block


@rule("PAD of channels", "CONV_2D", ("PAD", "x", "pads#"))
def convolve_padded_channels(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y = found.x, found.output
    *others, before, after = found.list_integers("pads#") or (1, 0, 0)
    if any(others) or min(before, after) < 0 or x.shape == y.shape:
        return "it pads other axes than the channels"
    if y in found.graph.walk_outputs():
        return "the result is an output of the model"
    if y.shape[-1] * x.shape[-1] > _MOST_COPIED:
        return "the filters would be too large"
    if not is_blocked(found.graph, x):
        return NOT_IN_BLOCKS
    # 0 and 1 are exact in float16. ONNX Runtime casts the filters when it loads the model.
    filters = np.eye(y.shape[-1], x.shape[-1], -before, np.float16)
    rw = Rewriter(found.last)
    rw.convolve("CONV_2D", x, filters[:, None, None, :], output=y)
    return rw.ops


@rule("PRELU after convolutions", "DEPTHWISE_CONV_2D, ADD", ("PRELU", "x", "slope#"))
def split_prelu(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y, slopes = found.x, found.output, found.tensors["slope#"]
    if not slopes.shape[-1:] == x.shape[-1:] == (slopes.elements,):
        return "each channel must have one slope"
    if not is_blocked(found.graph, x):
        return NOT_IN_BLOCKS
    bend = 1 - slopes.values.astype(np.float32).reshape(1, 1, 1, -1)
    rw, code = Rewriter(found.last), "DEPTHWISE_CONV_2D"
    below = rw.convolve(code, x, -np.abs(bend), like=y, name="bend", activation="RELU")
    signed = rw.convolve(code, below, np.sign(bend), like=y, name="signed")
    rw.op("ADD", signed, x, output=y)
    return rw.ops


@rule(
    "convolution with groups of 4 channels",
    "CONV_2D with groups of 16",
    Activated(("CONV_2D", "x", "filters#", ...)),
)
def merge_groups(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    op, x, w = found.last, found.x, found.tensors["filters#"]
    merged, rest = divmod(x.shape[-1], _BLOCK)
    if not is_float(w) or w.shape[-1] != _FEW or rest or w.shape[0] % (merged * _BLOCK):
        return f"it has no groups of {_FEW} channels that fill blocks of {_BLOCK}"
    filters = np.zeros((*w.shape[:-1], _BLOCK), np.float32)
    groups = np.arange(w.shape[0]) * (x.shape[-1] // _FEW) // w.shape[0]
    for i in range(_BLOCK // _FEW):
        rows = groups % (_BLOCK // _FEW) == i
        filters[rows, :, :, i * _FEW : (i + 1) * _FEW] = w.values[rows]
    return replace(op, inputs=(x, make_constant(f"{w.name}/merged", filters, w), *op.inputs[2:]))


@rule(
    "product or sum of an image and one computed pixel, between convolutions",
    "RESIZE_NEAREST_NEIGHBOR, MUL or ADD",
    Activated(OneOf(("MUL", "x", "pixel"), ("ADD", "x", "pixel"))),
    needs=CONVOLUTIONS,
)
def repeat_factors(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, pixel, y = found.x, found.tensors["pixel"], found.output
    single = (y.sizes[0], 1, 1, y.sizes[-1])
    if x.sizes != y.sizes or pixel.sizes != single or y.sizes == single:
        return "the operands must be an image and one pixel"
    if {1, 2} & y.symbols.keys() or _FLOAT * prod(y.shape[1:]) > _MOST_REPEATED:
        return "the height and width must be known, and the image small"
    if not (is_blocked(found.graph, x) and is_blocked(found.graph, pixel)):
        return NOT_IN_BLOCKS
    rw, size = Rewriter(found.last), make_int32(f"{pixel.name}/size", y.shape[1:3])
    repeated = rw.op("RESIZE_NEAREST_NEIGHBOR", pixel, size, like=y, name="repeated")
    op = found.last
    rw.op(op.code, x, repeated, output=y, made=op.made, **op.options)
    return rw.ops
