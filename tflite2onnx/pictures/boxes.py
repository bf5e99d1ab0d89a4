"""Boxes with scores: suppression of boxes that overlap better boxes."""

from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.tensor import DType

_CORNERS = 4


class Candidates(NamedTuple):
    """All boxes of a network, as fractions of its input.

    Attributes:
        boxes: float32 [n, 4], left, top, right, bottom.
        scores: float32 [classes, n].
    """

    boxes: Value
    scores: Value


class Detections(NamedTuple):
    """Boxes by decreasing score: boxes [m, 4], scores [m], classes int64 [m], keypoints [m, k, 2].

    Boxes and scores are as in `Candidates`; key points are x, y.
    """

    boxes: Value
    scores: Value
    classes: Value | None = None
    keypoints: Value | None = None


class BoxLimits(NamedTuple):
    """Limits of boxes: a score above `threshold`, at most `most` boxes, no overlap above `iou`.

    The overlap is the intersection over the union.
    """

    threshold: float
    iou: float
    most: int


def suppress(g: Nodes, candidates: Candidates, limits: BoxLimits) -> Detections:
    """Return the best boxes; only boxes of one class suppress each other.

    A box belongs to its best class, or to all its classes of equal scores.
    """
    best = g.reduce("ReduceMax", candidates.scores, [0], keepdims=True)
    zero = g.scalar(0, DType.FLOAT32)
    scores = g.Where(g.Equal(candidates.scores, best), candidates.scores, zero)
    batch = g.Unsqueeze(scores, [0])
    selected = _select(g, candidates.boxes, batch, limits)
    coordinates = g.GatherND(batch, selected)
    count = g.min_int64(g.Shape(coordinates), [limits.most])
    ordered, places = g.node_outputs("TopK", 2, coordinates, count, axis=0)
    classes, boxes = (
        g.Gather(g.Gather(selected, column, axis=1), places, axis=0) for column in (1, 2)
    )
    return Detections(g.Gather(candidates.boxes, boxes, axis=0), ordered, classes)


def average_boxes(
    g: Nodes, candidates: Candidates, points: Value, count: int, limits: BoxLimits
) -> Detections:
    """Return the best boxes, averaged with the boxes that they suppress, weighted by scores.

    `points` are `count` key points of each box, float32 [n, count, 2], which are averaged too. This
    is MediaPipe's weighted non-maximum suppression
    (mediapipe/calculators/util/non_max_suppression_calculator.cc). A box is averaged with the best
    box that suppresses it. Boxes have one class.
    """
    selected = _select(g, candidates.boxes, g.Unsqueeze(candidates.scores, [0]), limits)
    kept = g.Gather(selected, 2, axis=1)
    scores = g.Squeeze(candidates.scores, [0])
    overlaps = _measure_overlap(g, g.Gather(candidates.boxes, kept, axis=0), candidates.boxes)
    near = g.Greater(overlaps, g.scalar(limits.iou, DType.FLOAT32))
    passed = g.Greater(scores, g.scalar(limits.threshold, DType.FLOAT32))
    counted = g.And(near, g.Unsqueeze(passed, [0]))
    rank = g.CumSum(g.cast(counted, DType.INT64), 0)
    first = g.And(counted, g.Equal(rank, 1))
    weights = g.Where(first, g.Unsqueeze(scores, [0]), g.scalar(0, DType.FLOAT32))
    values = g.Concat(candidates.boxes, g.Reshape(points, [-1, 2 * count]), axis=1)
    total = g.reduce("ReduceSum", weights, [1], keepdims=True)
    means = g.Div(g.MatMul(weights, values), total)
    boxes, flat = g.node_outputs("Split", 2, means, [_CORNERS, 2 * count], axis=1)
    # The number of boxes may be 0, which Reshape cannot infer.
    sizes = g.Concat(g.Shape(kept), [count, 2], axis=0)
    return Detections(boxes, g.Gather(scores, kept, axis=0), None, g.reshape_to_sizes(flat, sizes))


def _select(g: Nodes, boxes: Value, scores: Value, limits: BoxLimits) -> Value:
    """Return (0, class, box) of the selected boxes, int64 [m, 3]; scores are [1, classes, n]."""
    return g.NonMaxSuppression(
        g.Unsqueeze(boxes, [0]),
        scores,
        [limits.most],
        g.constant(np.array([limits.iou], np.float32)),
        g.constant(np.array([limits.threshold], np.float32)),
    )


def _measure_overlap(g: Nodes, boxes: Value, others: Value) -> Value:
    """Return the intersection over union of each of boxes [m, 4] and of others [n, 4]: [m, n]."""
    sides = [g.node_outputs("Split", 4, x, [1] * _CORNERS, axis=1) for x in (boxes, others)]
    left, their = sides[0], [g.Transpose(side, perm=[1, 0]) for side in sides[1]]
    zero = g.scalar(0, DType.FLOAT32)
    spans = [
        g.Max(g.Sub(g.Min(left[high], their[high]), g.Max(left[low], their[low])), zero)
        for low, high in ((0, 2), (1, 3))
    ]
    shared = g.Mul(*spans)
    areas = [g.Mul(g.Sub(s[2], s[0]), g.Sub(s[3], s[1])) for s in (left, their)]
    # The union of two boxes without area is 0. The smallest number avoids 0 / 0.
    union = g.Sub(g.Add(*areas), shared)
    return g.Div(shared, g.Max(union, g.scalar(float(np.finfo(np.float32).tiny), DType.FLOAT32)))
