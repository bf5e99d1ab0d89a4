"""NON_MAX_SUPPRESSION_V4 and V5: the best boxes, without those that overlap better ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Body, eliminate_dead_nodes
from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, integer
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Sizes

_CORNERS = 4
_BOXES, _SCORES, _MOST, _OVERLAP, _LEAST, _SIGMA = range(6)


class NonMaxSuppression(DynamicShape):
    """Indices of boxes in the sequence of their scores, of V5 the scores too, and their number.

    Boxes are dropped that overlap by no less than a threshold. With a sigma, the scores of all
    others fall the more they overlap: that takes a loop, as ONNX's NonMaxSuppression knows no
    such thing. What is left of the outputs is 0.

    Which of several equal scores comes first is the runtime's affair: the kernel leaves it to a
    heap. It drops a box that is found because that overlaps itself; one without an area, which
    overlaps nothing, it finds again and again. So does the loop, unlike ONNX's own node.
    """

    codes = ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
    category = Category.TERMINATE
    returns_tuple = True
    dynamic_axes = "..."

    @property
    def _is_soft(self) -> bool:
        return self.op.code == "NON_MAX_SUPPRESSION_V5"

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        known = self.input(_MOST).data is not None
        return () if known else [[(i, 0) for i in range(1 + self._is_soft)]]

    @cached_property
    def _max_boxes(self) -> int:
        """How many boxes are to be found, as far as it is known."""
        if self.input(_MOST).data is None:
            return self.output.shape[0] if self.output.rank else 0
        most = integer(self, _MOST)
        check_element_count(most)
        if most < 0:
            raise OperatorError(f"{most} boxes are to be found")
        return most

    def check(self) -> None:
        boxes, soft = self.input(_BOXES), self._is_soft
        count = boxes.shape[0] if boxes.rank else 0
        expect(boxes, (count, _CORNERS), DType.FLOAT32)
        expect(self.input(_SCORES), (count,), DType.FLOAT32)
        expect(self.input(_MOST), (), DType.INT32)
        if len(self.op.inputs) != 5 + soft or len(self.op.outputs) != 2 + soft or not count:
            sizes = len(self.op.inputs), len(self.op.outputs)
            raise OperatorError("{} boxes, {} inputs and {} outputs".format(count, *sizes))
        for index in range(_OVERLAP, len(self.op.inputs)):
            expect(self.input(index), (), DType.FLOAT32)
        sigma = self._constant(_SIGMA) if soft else None
        if sigma is not None and sigma < 0:
            raise OperatorError(f"sigma is {sigma}")
        indices, *scores, number = self.op.outputs
        expect(indices, (self._max_boxes,), DType.INT32)
        expect(number, (), DType.INT32)
        for tensor in scores:
            expect(tensor, (self._max_boxes,), DType.FLOAT32)

    def _constant(self, index: int) -> np.float32 | None:
        """Return a number if it is known."""
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
        room = g.cast(most.reshape((1,)), DType.INT64)
        known, soft = self._constant(_OVERLAP), self._is_soft and self._constant(_SIGMA) != 0
        if known is None or not 0 < known <= 1 or soft:
            limits = Thresholds(overlap, least, _scale(g, sigma))
            indices, values = _suppress_in_loop(g, boxes, scores, room, limits)
        else:
            indices = _suppress_by_node(g, boxes, scores, room, known, least)
            values = g.Gather(scores, indices)
        number = g.Shape(indices)
        pads = g.Concat(g.ints([0]), g.Sub(room, number), axis=0)
        made = [g.Pad(g.cast(indices, DType.INT32), pads, g.scalar(0, DType.INT32))]
        if self._is_soft:
            made.append(g.Pad(values, pads, g.scalar(0, DType.FLOAT32)))
        return (*made, g.cast(g.Squeeze(number, g.ints([0])), DType.INT32))


class Thresholds(NamedTuple):
    """How much a box may overlap, the score that it has to pass, and how scores fall."""

    overlap: View
    least: View
    scale: Value | None


def _scale(g: Builder, sigma: View | None) -> Value | None:
    """Return what an overlap, squared, is multiplied by to give a power; None without a sigma."""
    if sigma is None:
        return None
    zero, half = (g.scalar(number, DType.FLOAT32) for number in (0, -0.5))
    return g.Where(g.Greater(sigma, zero), g.Div(half, sigma), zero)


def _suppress_by_node(
    g: Builder, boxes: View, scores: View, most: Value, overlap: np.float32, least: View
) -> Value:
    """Return the indices of the boxes that ONNX's own node finds."""
    # It drops boxes that overlap by more than a threshold.
    below = np.nextafter(overlap, np.float32(0))
    found = g.NonMaxSuppression(
        g.Unsqueeze(boxes, g.ints([0])),
        g.Unsqueeze(scores, g.ints([0, 1])),
        most,
        g.constant(np.array([below], np.float32)),
        least.reshape((1,)),
    )
    return g.Gather(found, g.scalar(2, DType.INT64), axis=1)


def _suppress_in_loop(
    g: Builder, boxes: View, scores: View, most: Value, limits: Thresholds
) -> tuple[Value, Value]:
    """Return indices and scores of boxes that are found in a loop, the best one in each round.

    The scores of boxes that are out are less than all others. The kernel lets a score fall only
    when it is the highest; of scores that are not negative, what comes is the same.
    """
    there = g.Greater(scores, limits.least)
    first = g.Where(there, scores, g.scalar(-np.inf, DType.FLOAT32))
    start = g.Greater(g.reduce("ReduceMax", first, [0], keepdims=False), limits.least)
    count = g.reduce("ReduceSum", g.cast(there, DType.INT64), [0], keepdims=True)
    rounds = g.Squeeze(g.Min(count, most), g.ints([0]))
    body = _round(g, _corners(g, boxes), limits, boxes.sizes[:1])
    _, indices, values = g.node_outputs("Loop", 3, rounds, start, first, body=body)
    return indices, values


class Corners(NamedTuple):
    """The lowest and the highest coordinates of boxes, [n, 2] each, and their areas [n]."""

    low: Value
    high: Value
    area: Value


def _corners(g: Builder, boxes: View) -> Corners:
    """Return where boxes are, of which any two opposite corners are given."""
    parts = [g.Slice(boxes, g.ints([i]), g.ints([i + 2]), g.ints([1])) for i in (0, 2)]
    low, high = g.Min(*parts), g.Max(*parts)
    return Corners(low, high, _area(g, g.Sub(high, low)))


def _area(g: Builder, sizes: Value) -> Value:
    sides = (g.Gather(sizes, g.scalar(i, DType.INT64), axis=1) for i in (0, 1))
    return g.Mul(*sides)


def _overlap(g: Builder, all_boxes: Corners, index: Value) -> Value:
    """Return by how much of their union all boxes overlap one, 0 if that or they have no area."""
    one = Corners(*(g.Gather(each, index) for each in all_boxes))
    zero = g.scalar(0, DType.FLOAT32)
    sizes = g.Sub(g.Min(all_boxes.high, one.high), g.Max(all_boxes.low, one.low))
    shared = _area(g, g.Max(sizes, zero))
    union = g.Sub(g.Add(one.area, all_boxes.area), shared)
    areas = g.And(g.Greater(all_boxes.area, zero), g.Greater(one.area, zero))
    return g.Where(areas, g.Div(shared, union), zero)


def _round(g: Builder, boxes: Corners, thresholds: Thresholds, shape: Sizes) -> Body:
    """Return the graph of a loop that takes the best of scores in a shape, and lowers the others.

    It hands on the scores, and returns the index and the score of the best in each round.
    """
    inner = g.make_nested()
    number, go = (g.annotate(Value(dtype=t), t, ()) for t in (DType.INT64, DType.BOOL))
    scores = g.annotate(Value(dtype=DType.FLOAT32), DType.FLOAT32, shape)
    best = g.annotate(inner.ArgMax(scores, axis=0, keepdims=0), DType.INT64, ())
    score = g.annotate(inner.Gather(scores, best), DType.FLOAT32, ())
    shared, left = _overlap(inner, boxes, best), scores
    drop = inner.GreaterOrEqual(shared, thresholds.overlap)
    if thresholds.scale is not None:
        power = inner.Mul(inner.Mul(thresholds.scale, shared), shared)
        left = inner.Mul(scores, inner.Exp(power))
        drop = inner.Or(drop, inner.LessOrEqual(left, thresholds.least))
    left = inner.Where(drop, inner.scalar(-np.inf, DType.FLOAT32), left)
    highest = inner.reduce("ReduceMax", left, [0], keepdims=False)
    more = inner.Greater(highest, thresholds.least)
    outputs = (
        g.annotate(more, DType.BOOL, ()),
        g.annotate(left, DType.FLOAT32, shape),
        best,
        score,
    )
    return Body(
        "suppress", (number, go, scores), eliminate_dead_nodes(inner.nodes, outputs), outputs, ()
    )
