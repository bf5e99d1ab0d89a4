"""The part of the plane that a network reads: a picture, stretched or with margins around it.

A point of the network's input is given as a fraction of its size. In pixels of the picture it is
`fraction * extent - offset`. Pixel i covers the numbers from i to i + 1.
"""

from enum import Enum
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.tensor import DType


class Fit(Enum):
    """How a picture fills the input of a network: the values of the setting `resize`.

    LETTERBOX and CENTER keep the ratio of height and width, between margins. The margins of
    LETTERBOX are whole pixels: if the total is odd, the right or lower margin has one pixel more.
    The margins of CENTER are equal, and may have half a pixel, as in MediaPipe's
    ImageToTensorCalculator.
    """

    STRETCH = "stretch"
    LETTERBOX = "letterbox"
    CENTER = "center"


class PictureFrame(NamedTuple):
    """The part of the plane that a network reads; all values have two elements, height first.

    Attributes:
        size: the size of the picture in pixels, int64.
        extent: the size of the part of the plane that becomes the whole input, in pixels of the
            picture, int64.
        offset: the margins at the top and at the left, in pixels: None for STRETCH, int64 for
            LETTERBOX, float32 for CENTER.
    """

    size: Value
    extent: Value
    offset: Value | None = None


def frame_picture(g: Nodes, size: Value, target: tuple[int, int], fit: Fit) -> PictureFrame:
    """Return the frame of a picture of a size, int64 [2], for an input of the size `target`."""
    if fit is Fit.STRETCH:
        return PictureFrame(size, size)
    height, width = target
    # The height of the image at full width, and the width at full height, rounded up.
    ratios, divisors = g.ints([height, width]), g.ints([width, height])
    swapped = g.Gather(size, [1, 0], axis=0)
    size_wanted = g.Div(g.Add(g.Mul(swapped, ratios), [width - 1, height - 1]), divisors)
    extent = g.max_int64(size, size_wanted)
    margins = g.Sub(extent, size)
    if fit is Fit.LETTERBOX:
        return PictureFrame(size, extent, g.Div(margins, [2]))
    half = g.Mul(g.cast(margins, DType.FLOAT32), g.scalar(0.5, DType.FLOAT32))
    return PictureFrame(size, extent, half)


def sample_picture(g: Nodes, image: Value, frame: PictureFrame, target: tuple[int, int]) -> Value:
    """Return a picture [height, width, C] of numbers as float32 of the size `target`.

    Pixels are interpolated linearly between their centres; pixels outside of the picture are 0.
    ONNX's Resize has no margins of half pixels, except in a mode that few runtimes have.
    """
    for axis, count in enumerate(target):
        size, extent, start = (
            g.Gather(x, [axis], axis=0)
            for x in (frame.size, g.cast(frame.extent, DType.FLOAT32), frame.offset)
        )
        centres = g.constant(((np.arange(count) + 0.5) / count).astype(np.float32))
        half = g.scalar(0.5, DType.FLOAT32)
        places = g.Sub(g.Sub(g.Mul(centres, extent), start), half)
        low = g.Floor(places)
        share = g.Sub(places, low)
        before = g.cast(low, DType.INT64)
        after = g.Add(before, [1])
        other = g.Sub(g.scalar(1, DType.FLOAT32), share)
        image = g.Add(
            _weigh_pixels(g, image, axis, before, other, size),
            _weigh_pixels(g, image, axis, after, share, size),
        )
    return image


def _weigh_pixels(
    g: Nodes, image: Value, axis: int, places: Value, weights: Value, size: Value
) -> Value:
    """Return the pixels at positions of an axis times weights, 0 for positions outside."""
    last = g.Sub(size, [1])
    zero = g.ints([0])
    inside = g.max_int64(zero, g.min_int64(places, last))
    weights = g.Where(g.Equal(inside, places), weights, g.scalar(0, DType.FLOAT32))
    pixels = g.cast(g.Gather(image, inside, axis=axis), DType.FLOAT32)
    return g.Mul(pixels, g.Unsqueeze(weights, g.ints([1, 2] if axis == 0 else [1])))


def to_picture(
    g: Nodes, points: Value, frame: PictureFrame, *, fractions: bool, clips: bool = False
) -> Value:
    """Return points of the input, [..., 2] with x first, in pixels or fractions of a picture.

    All are float32. `points` are fractions of the input. With `clips`, points outside of the
    picture move to its edge.
    """

    def as_xy(pair: Value) -> Value:
        return g.cast(g.Gather(pair, [1, 0], axis=0), DType.FLOAT32)

    points = g.Mul(points, as_xy(frame.extent))
    if frame.offset is not None:
        points = g.Sub(points, as_xy(frame.offset))
    if clips:
        points = g.Max(g.Min(points, as_xy(frame.size)), g.scalar(0, DType.FLOAT32))
    return g.Div(points, as_xy(frame.size)) if fractions else points
