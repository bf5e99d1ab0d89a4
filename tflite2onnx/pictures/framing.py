"""The part of the plane that a network sees: the picture, stretched or with margins around it.

A point of the network's input, as a fraction of its size, is the picture's point
`fraction * extent - offset`, in pixels; pixel i covers the numbers from i to i + 1.
"""

from __future__ import annotations

from typing import NamedTuple

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.tensor import DType


class Frame(NamedTuple):
    """What a network sees of a picture; each value is int64 [2], height first.

    Attributes:
        size: the size of the picture in pixels.
        extent: the size, in pixels of the picture, of what becomes the whole input.
        offset: the margins at the top and at the left; None if there are none.
    """

    size: Value
    extent: Value
    offset: Value | None = None


def frame_picture(g: Nodes, size: Value, target: tuple[int, int], *, letterbox: bool) -> Frame:
    """Return the frame of a picture of a size, int64 [2], for an input of the size `target`.

    With `letterbox` the picture keeps its ratio of width and height, and stands in the middle of
    margins. The margins are whole pixels: of an odd number the right or lower one gets one more.
    """
    if not letterbox:
        return Frame(size, size)
    height, width = target
    # The height for the full width, and the width for the full height, rounded up.
    ratios, divisors = g.ints([height, width]), g.ints([width, height])
    swapped = g.Gather(size, g.ints([1, 0]), axis=0)
    wanted = g.Div(g.Add(g.Mul(swapped, ratios), g.ints([width - 1, height - 1])), divisors)
    extent = g.in_compute_type("Max", DType.INT64, size, wanted)
    return Frame(size, extent, g.Div(g.Sub(extent, size), g.ints([2])))


def to_picture(g: Nodes, points: Value, frame: Frame, *, fractions: bool) -> Value:
    """Return points [..., 2], x first, fractions of the input, in pixels or fractions of a picture.

    All are float32.
    """

    def as_xy(pair: Value) -> Value:
        return g.cast(g.Gather(pair, g.ints([1, 0]), axis=0), DType.FLOAT32)

    points = g.Mul(points, as_xy(frame.extent))
    if frame.offset is not None:
        points = g.Sub(points, as_xy(frame.offset))
    return g.Div(points, as_xy(frame.size)) if fractions else points
