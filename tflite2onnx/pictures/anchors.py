"""Anchors of detectors, as MediaPipe's SsdAnchorsCalculator defines them.

The source is mediapipe/calculators/tflite/ssd_anchors_calculator.cc and its options in
ssd_anchors_calculator.proto.
"""

import math
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tflite2onnx.tensor import Array


class AnchorOptions(NamedTuple):
    """The options of the calculator that differ between published models.

    `size` is the height and the width of the network's input in pixels. Each layer of the network
    has a stride; layers with equal strides share a feature map. `fixed` anchors are as large as the
    picture. Without an `interpolated` ratio, layers have no anchor between their scale and the
    next. `reduced` is the calculator's option reduce_boxes_in_lowest_layer.
    """

    size: tuple[int, int]
    strides: tuple[int, ...]
    scales: tuple[float, float] = (0.1484375, 0.75)
    ratios: tuple[float, ...] = (1.0,)
    interpolated: float = 1.0
    fixed: bool = True
    reduced: bool = False


def make_anchors(options: AnchorOptions) -> Array:
    """Return anchors, float32 [n, 4]: centre x, centre y, width, height, as fractions."""
    rows = []
    layers = groupby(range(len(options.strides)), key=lambda i: options.strides[i])
    for stride, indices in layers:
        height, width = (math.ceil(size / stride) for size in options.size)
        y, x = np.mgrid[:height, :width] + 0.5
        sizes = [extent for index in indices for extent in _list_sizes(options, index)]
        anchors = np.empty((height, width, len(sizes), 4))
        anchors[..., 0] = (x / width)[..., None]
        anchors[..., 1] = (y / height)[..., None]
        anchors[..., 2:] = 1 if options.fixed else sizes
        rows.append(anchors.reshape(-1, 4))
    return np.concatenate(rows).astype(np.float32)


def _list_sizes(options: AnchorOptions, layer: int) -> Iterator[tuple[float, float]]:
    scale, following = (_compute_scale(options, index) for index in (layer, layer + 1))
    pairs = [(scale, ratio) for ratio in options.ratios]
    if layer == 0 and options.reduced:
        pairs = [(0.1, 1.0), (scale, 2.0), (scale, 0.5)]
    elif options.interpolated:
        pairs.append((math.sqrt(scale * following), options.interpolated))
    for size, ratio in pairs:
        yield size * math.sqrt(ratio), size / math.sqrt(ratio)


def _compute_scale(options: AnchorOptions, layer: int) -> float:
    """Return the scale of a layer; the scale after the last layer is 1."""
    (low, high), last = options.scales, len(options.strides) - 1
    if layer > last:
        return 1.0
    return low + (high - low) * layer / last if last else (low + high) / 2
