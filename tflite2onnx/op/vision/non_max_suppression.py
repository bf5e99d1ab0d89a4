"""NON_MAX_SUPPRESSION_V4 and V5: select the best boxes, without overlapping boxes."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Body, eliminate_dead_nodes
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    expect_input_count,
    expect_output_count,
    expect_type,
    read_count,
)
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.tensor import DType, Sizes
from tflite2onnx.utils.dimension import require_equal, require_number

_CORNERS = 4
_BOXES, _SCORES, _MOST, _OVERLAP, _LEAST, _SIGMA = range(6)


class NonMaxSuppression(AnySizes):
    """Indices of boxes by decreasing score, in V5 also their scores, and the number of boxes.

    A box is dropped if its overlap with a better box is greater than or equal to a threshold. With
    a sigma (soft suppression), the scores of the remaining boxes decrease with their overlap.
    ONNX's NonMaxSuppression has no soft suppression, so soft suppression becomes a Loop. Elements
    of the outputs after the last box are 0.

    The order of equal scores is unspecified, because the kernel uses a heap. The kernel drops a
    selected box only because the box overlaps itself. A box without an area overlaps no box, so the
    kernel selects it repeatedly, and so does the Loop. ONNX's node selects it once.
    """

    codes = ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
    operands = (
        "float32 [boxes 4], float32 [boxes], int32 [], float32 [], float32 [], float32? []"
        "-> int32, ..."
    )

    @property
    def _is_soft(self) -> bool:
        return self.op.code == "NON_MAX_SUPPRESSION_V5"

    def infer_outputs(self) -> Sequence[OutputShape]:
        boxes, scores = self.input(_BOXES), self.input(_BOXES + 1)
        if boxes.rank == 2 and scores.rank == 1:  # for other ranks `check` raises the error
            require_number(boxes.shape[1], _CORNERS, f"{boxes.name} must have {_CORNERS} corners")
            require_equal(boxes.shape[0], scores.shape[0], "each box must have a score")
        limit = Unknown() if self.input(_MOST).data is None else self._max_boxes
        return [*[(limit,)] * (1 + self._is_soft), ()]

    @cached_property
    def _max_boxes(self) -> int:
        return read_count(self, _MOST, "the number of boxes to select")

    def check(self) -> None:
        soft = self._is_soft
        expect_input_count(self, 5 + soft)
        expect_output_count(self, 2 + soft)
        if not self.input(_BOXES).elements:
            raise OperatorError("it must have one or more boxes, got none")
        sigma = self._read_constant(_SIGMA) if soft else None
        if sigma is not None and sigma < 0:
            raise OperatorError(f"sigma must not be negative, got {sigma}")
        _, *scores, number = self.op.outputs
        expect_type(number, (DType.INT32,))
        for tensor in scores:
            expect_type(tensor, (DType.FLOAT32,))

    def _read_constant(self, index: int) -> np.float32 | None:
        """Return the value of a constant scalar input; None if the input is computed."""
        data = self.input(index).data
        return None if data is None else np.float32(data.reshape(-1)[0])

    def emit(
        self,
        g: Builder,
        ys: tuple[View, ...],
        boxes: View,
        scores: View,
        most: View,
        overlap: View,
        least: View,
        sigma: View | None = None,
    ) -> tuple[Value, ...]:
        max_boxes = g.cast(most.reshape((1,)), DType.INT64)
        threshold = self._read_constant(_OVERLAP)
        soft = self._is_soft and self._read_constant(_SIGMA) != 0
        if threshold is None or not 0 < threshold <= 1 or soft:
            limits = Thresholds(overlap, least, _make_scale(g, sigma))
            indices, values = _suppress_in_loop(g, boxes, scores, max_boxes, limits)
        else:
            indices = _suppress_by_node(g, boxes, scores, max_boxes, threshold, least)
            values = g.Gather(scores, indices)
        number = g.Shape(indices)
        pads = g.Concat([0], g.Sub(max_boxes, number), axis=0)
        outputs = [g.Pad(g.cast(indices, DType.INT32), pads, g.scalar(0, DType.INT32))]
        if self._is_soft:
            outputs.append(g.Pad(values, pads, g.scalar(0, DType.FLOAT32)))
        return (*outputs, g.cast(g.Squeeze(number, [0]), DType.INT32))


class Thresholds(NamedTuple):
    """The overlap that drops a box, the minimum score, and the exponent of soft suppression."""

    overlap: View
    least: View
    scale: Value | None


def _make_scale(g: Builder, sigma: View | None) -> Value | None:
    """Return -0.5 / sigma, the factor of the squared overlap in the exponent, or None."""
    if sigma is None:
        return None
    zero, half = (g.scalar(number, DType.FLOAT32) for number in (0, -0.5))
    return g.Where(g.Greater(sigma, zero), g.Div(half, sigma), zero)


def _suppress_by_node(
    g: Builder, boxes: View, scores: View, limit: Value, overlap: np.float32, minimum: View
) -> Value:
    """Return the indices of the boxes that ONNX's node selects."""
    # ONNX keeps boxes whose overlap equals the threshold, and the kernel drops them.
    below = np.nextafter(overlap, np.float32(0))
    selected = g.NonMaxSuppression(
        g.Unsqueeze(boxes, [0]),
        g.Unsqueeze(scores, [0, 1]),
        limit,
        g.constant(np.array([below], np.float32)),
        minimum.reshape((1,)),
    )
    return g.Gather(selected, 2, axis=1)


def _suppress_in_loop(
    g: Builder, boxes: View, scores: View, limit: Value, limits: Thresholds
) -> tuple[Value, Value]:
    """Return the indices and scores of boxes; each iteration of a Loop selects the best box.

    Dropped boxes get a score of -infinity. The kernel lowers a score only when it is the highest;
    for non-negative scores the result is the same.
    """
    is_candidate = g.Greater(scores, limits.least)
    initial_scores = g.Where(is_candidate, scores, g.scalar(-np.inf, DType.FLOAT32))
    start = g.Greater(g.reduce("ReduceMax", initial_scores, [0], keepdims=False), limits.least)
    count = g.reduce("ReduceSum", g.cast(is_candidate, DType.INT64), [0], keepdims=True)
    rounds = g.Squeeze(g.Min(count, limit), [0])
    body = _make_round(g, _list_corners(g, boxes), limits, boxes.sizes[:1])
    _, indices, values = g.node_outputs("Loop", 3, rounds, start, initial_scores, body=body)
    return indices, values


class Corners(NamedTuple):
    """The lowest and the highest coordinates of boxes, [n, 2] each, and their areas [n]."""

    low: Value
    high: Value
    area: Value


def _list_corners(g: Builder, boxes: View) -> Corners:
    """Return the coordinates of boxes, which are given by any two opposite corners."""
    parts = [g.Slice(boxes, [i], [i + 2], [1]) for i in (0, 2)]
    low, high = g.Min(*parts), g.Max(*parts)
    return Corners(low, high, _compute_area(g, g.Sub(high, low)))


def _compute_area(g: Builder, sizes: Value) -> Value:
    return g.Mul(*(g.Gather(sizes, i, axis=1) for i in (0, 1)))


def _compute_overlap(g: Builder, all_boxes: Corners, index: Value) -> Value:
    """Return the intersection over union of each box and one box; 0 if either has no area."""
    reference = Corners(*(g.Gather(coordinates, index) for coordinates in all_boxes))
    zero = g.scalar(0, DType.FLOAT32)
    sizes = g.Sub(g.Min(all_boxes.high, reference.high), g.Max(all_boxes.low, reference.low))
    shared = _compute_area(g, g.Max(sizes, zero))
    union = g.Sub(g.Add(reference.area, all_boxes.area), shared)
    areas = g.And(g.Greater(all_boxes.area, zero), g.Greater(reference.area, zero))
    return g.Where(areas, g.Div(shared, union), zero)


def _make_round(g: Builder, boxes: Corners, thresholds: Thresholds, shape: Sizes) -> Body:
    """Return the Loop body that selects the best box, and lowers or drops the other scores.

    The scores, of the given shape, are carried from one iteration to the next. Each iteration
    outputs the index and the score of its best box.
    """
    inner = g.make_nested()
    number, condition = (g.annotate(Value(dtype=t), t, ()) for t in (DType.INT64, DType.BOOL))
    scores = g.annotate(Value(dtype=DType.FLOAT32), DType.FLOAT32, shape)
    best = g.annotate(inner.ArgMax(scores, axis=0, keepdims=0), DType.INT64, ())
    score = g.annotate(inner.Gather(scores, best), DType.FLOAT32, ())
    overlap, remaining = _compute_overlap(inner, boxes, best), scores
    drop = inner.GreaterOrEqual(overlap, thresholds.overlap)
    if thresholds.scale is not None:
        power = inner.Mul(inner.Mul(thresholds.scale, overlap), overlap)
        remaining = inner.Mul(scores, inner.Exp(power))
        # The score of a dropped box (-infinity) times 0 is NaN, and no NaN is greater than the
        # minimum.
        drop = inner.Or(drop, inner.Not(inner.Greater(remaining, thresholds.least)))
    remaining = inner.Where(drop, inner.scalar(-np.inf, DType.FLOAT32), remaining)
    highest = inner.reduce("ReduceMax", remaining, [0], keepdims=False)
    any_left = inner.Greater(highest, thresholds.least)
    outputs = (
        g.annotate(any_left, DType.BOOL, ()),
        g.annotate(remaining, DType.FLOAT32, shape),
        best,
        score,
    )
    nodes = eliminate_dead_nodes(inner.nodes, outputs)
    return Body("suppress", (number, condition, scores), nodes, outputs, ())
