"""A factor of each channel is repeated for all pixels of an image, for ONNX Runtime.

Squeeze and excitation multiplies an image by a computed factor for each channel. ONNX Runtime
resizes images, and multiplies images of one shape, in the blocked layout of convolutions. An image
and a single pixel are multiplied outside of the blocks, between three reorders. With repeated
factors the bottlenecks of MobileNet v3 with 7x7 to 28x28 pixels take 0.86 to 0.97 of the time, and
those with 56x56 pixels 0.95 to 0.97 (one thread of an AMD EPYC, family 26). With 112x112 pixels
of 96 channels, which are larger than a cache, they take longer. MUL and ADD are changed if

1. both inputs are float32 images that depend on convolutions (`find_images`);
2. one has the shape of the result, whose height and width are known and which has at most 2^19
   elements for each image, and the other has one pixel;
3. no product of integers reads or writes the images: it stores them with channels last.
"""

from __future__ import annotations

from math import prod

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import find_images, find_integer_images
from tflite2onnx.passes.patterns.matching import Activated, Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32

_MOST = 1 << 19  # elements of an image


def _resize_pixel(found: Match) -> list[Op]:
    """Return the pixel with the size of the image, and the product; [] unless 1 to 3 hold."""
    x, pixel, y = found.x, found.tensors["pixel"], found.output
    if not found.analyze(find_images) >= {x, pixel} or {x, y} & found.analyze(find_integer_images):
        return []
    single = (y.sizes[0], 1, 1, y.sizes[-1])
    if x.sizes != y.sizes or pixel.sizes != single or y.sizes == single:
        return []
    if {1, 2} & y.symbols.keys() or prod(y.shape[1:]) > _MOST:
        return []
    rw = Rewriter(found.last)
    repeated = rw.op(
        "RESIZE_NEAREST_NEIGHBOR",
        pixel,
        make_int32(f"{pixel.name}/size", y.shape[1:3]),
        like=y,
        name="repeated",
        align_corners=False,
        half_pixel_centers=False,
    )
    rw.op(found.last.code, x, repeated, output=y, **found.last.options)
    return rw.ops


repeat_factors = Rules(
    Rule(
        "product or sum of an image and one computed pixel, between convolutions",
        "RESIZE_NEAREST_NEIGHBOR, MUL or ADD",
        Activated(OneOf(("MUL", "x", "pixel"), ("ADD", "x", "pixel"))),
        _resize_pixel,
    ),
)
