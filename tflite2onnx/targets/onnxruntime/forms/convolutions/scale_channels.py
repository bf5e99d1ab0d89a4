"""Products and sums with constants of channels become depthwise convolutions, for ONNX Runtime.

    x m + c = the depthwise convolution of x with 1x1 filters m and biases c

Normalizations before a convolution are products and sums with constants of each channel, after a
concatenation or a sum (DenseNet, ResNet v2). ONNX Runtime adds them outside of the blocked layout
of convolutions, and applies the activation there, between two reorders; a convolution does both in
the blocks. A product, a sum, or a sum of a product is replaced if

1. it is a float32 image; the plan stores it and the result with channels first; the result is no
   output of the graph;
2. the constants have one element for each channel, or only one, and the channels are a multiple
   of 4: ONNX Runtime computes others one by one.

An infinite number times a factor of 0 is NaN in both forms. Products are rounded before sums in the
one form and not in the other, which changes a result by 1e-7 of the range.

Products and sums of integers round in each operator, so they stay (`repeat_constants`). Their
constants are repeated along a row of the image, or along more, if `costs` expects a shorter time.
ONNX Runtime calls its kernels of QLinearMul and QLinearAdd once for each run of elements whose
constants are one, or one each: for each pixel, which takes 10 to 30 ns more. Two keyword networks
of 8 to 32 channels, which normalize after Relu, take 0.31 of the time, and 0.42 with AVX2. A YOLOv5
of 416x416 pixels, whose boxes have constants for two numbers, takes 0.94, and 0.97 with AVX2; its
file has 4 % more bytes (`python scripts/latency.py`, AMD EPYC, family 25, model 17).
"""

from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import CONVOLUTIONS, spread_over_channels
from tflite2onnx.passes.patterns.matching import Activated, Match, OneOf, Pattern
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.blocks import NOT_IN_BLOCKS, is_blocked
from tflite2onnx.targets.onnxruntime.costs import Gain, Terms, explain_nodes
from tflite2onnx.tensor import Array, DType, Shape

_ALIGNMENT = 4  # channels
_IMAGE = 4  # axes
_MOST_REPEATED = 1 << 15  # bytes by which the file may grow
# A tenth is the error of the factors; a small image gains less than a microsecond.
_REPEATED = Gain(0, part=0.1)


_PRODUCT: Pattern = ("MUL", "x", "factors#")
_SUMS = (("ADD", OneOf(_PRODUCT, "x"), "offsets#"), ("SUB", OneOf(_PRODUCT, "x"), "offsets#"))


@rule(
    "products and sums with constants between convolutions",
    "DEPTHWISE_CONV_2D",
    Activated(OneOf(*_SUMS, _PRODUCT)),
    needs=CONVOLUTIONS,
)
def scale_channels(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, x, y = found.last, found.x, found.output
    if y in found.graph.outputs or x.sizes != y.sizes or x.rank != _IMAGE:
        return "the result is an output of the model, or a larger image"
    factors = _read_vector(found, "factors#", 1)
    offsets = _read_vector(found, "offsets#", 0)
    fits = min(factors.size, offsets.size) > 0 and y.shape[-1] % _ALIGNMENT == 0
    if _IMAGE - 1 in y.symbols or not fits:
        return "the constants must have a number for each channel, of a multiple of 4"
    if not (is_blocked(found.graph, x) and is_blocked(found.graph, y)):
        return NOT_IN_BLOCKS
    rw = Rewriter(op)
    rw.convolve(
        "DEPTHWISE_CONV_2D",
        x,
        factors.reshape(1, 1, 1, -1),
        -offsets if op.is_builtin("SUB") else offsets,
        output=y,
        activation=op.activation,
    )
    return rw.ops


@rule(
    "constants in products and sums of 8 bits",
    "the same constants for each row of an image",
    Activated(OneOf(("MUL", "x", "c#"), ("ADD", "x", "c#"), ("SUB", "x", "c#"))),
    dtype=None,
    needs=CONVOLUTIONS,
)
def repeat_constants(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    op, x, y, constant = found.last, found.x, found.output, found.tensors["c#"]
    tensors = (x, constant, y)
    if not all(is_quantized(t) and t.dtype in (DType.INT8, DType.UINT8) for t in tensors):
        return "the operands and the result must have 8 bits"
    if x.sizes != y.sizes or y.symbols.keys() - {0}:
        return "the result must be an image of known sizes"
    single = (1,) * (y.rank - constant.rank) + constant.shape
    shapes = [single[:axis] + y.shape[axis:] for axis in range(y.rank - 2, 0, -1)]
    losses = [_explain_loss(shape, single, y.shape) for shape in shapes]
    shape = next((s for s, loss in zip(shapes, losses, strict=True) if not loss), ())
    if not shape:
        return losses[-1] if losses else "the result must be an image"
    if prod(shape) > _MOST_REPEATED:
        return f"there must be at most {_MOST_REPEATED} constants, got {prod(shape)}"
    data = np.broadcast_to(constant.values.reshape(single), shape)
    repeated = replace(constant, name=f"{constant.name}/row", shape=shape, data=data)
    return replace(op, inputs=tuple(repeated if t is constant else t for t in op.inputs))


def _explain_loss(shape: Shape, single: Shape, image: Shape) -> str:
    """Return why constants of a shape are not faster than those of another, "" if they are."""
    numbers = prod(image)
    made, replaced = (
        Terms(loads=numbers, rows=numbers / max(_count_together(each, image), 1))
        for each in (shape, single)
    )
    return explain_nodes([("integer runs", made)], [("integer runs", replaced)], _REPEATED)


def _count_together(shape: Shape, image: Shape) -> int:
    """Return how many consecutive elements of an image share a constant, or have one each."""
    count, kinds = 1, set[bool]()
    for constants, size in zip(reversed(shape), reversed(image), strict=True):
        kinds |= {constants == size} if size > 1 else set()
        if len(kinds) > 1:
            break
        count *= size
    return count


def _read_vector(found: Match, name: str, default: float) -> Array:
    """Return a constant as [C], no elements if it has other axes; a default if there is none."""
    y = found.output
    if name not in found.tensors:
        return np.full(y.shape[-1], default, np.float32)
    return spread_over_channels(found.tensors[name], y).astype(np.float32)
