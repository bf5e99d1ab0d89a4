"""TensorFlow's selection of boxes of many classes, as detectors end in."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, integer
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_CORNERS = 4
_F32 = DType.FLOAT32


class FlexCombinedSuppression(DynamicShape):
    """FlexCombinedNonMaxSuppression: the best boxes of each class, and of these the best of all.

    A box is dropped that overlaps a better one of its class by more than a threshold, or whose
    score is not above another threshold. What is left of the outputs is 0. Which of equal scores
    comes first is left open.
    """

    codes = ("FlexCombinedNonMaxSuppression",)
    custom = True
    category = Category.TERMINATE
    returns_tuple = True

    @cached_property
    def _sizes(self) -> tuple[int, int, int, int]:
        """Batch, boxes, boxes for each of the classes (or for all), and classes."""
        boxes, scores = self.input(0), self.input(1)
        batch, count, own, _ = boxes.shape if boxes.rank == _CORNERS else (0, 0, 0, 0)
        classes = scores.shape[-1] if scores.rank else 0
        if own not in (1, classes) or 0 in (batch, count, classes):
            raise OperatorError(f"boxes {list(boxes.shape)} with scores {list(scores.shape)}")
        return batch, count, own, classes

    @cached_property
    def _box_limits(self) -> tuple[int, int]:
        """How many boxes are found of each class, and in all."""
        of_each, of_all = integer(self, 2), integer(self, 3)
        if min(of_each, of_all) < 1:
            raise OperatorError(f"{of_each} boxes of each class, {of_all} of all")
        check_element_count(of_all)
        if self.options.get("pad_per_class", False):
            of_all = min(of_all, of_each * self._sizes[3])
        return of_each, of_all

    def check(self) -> None:
        batch, count, own, classes = self._sizes
        expect(self.input(0), (batch, count, own, _CORNERS), _F32)
        expect(self.input(1), (batch, count, classes), _F32)
        for i in (4, 5):
            expect(self.input(i), (), _F32)
        total = self._box_limits[1]
        shapes: list[Shape] = [(batch, total, _CORNERS), (batch, total), (batch, total), (batch,)]
        types = _F32, _F32, _F32, DType.INT32
        if len(self.op.outputs) != len(shapes):
            raise OperatorError(f"it has {len(self.op.outputs)} outputs")
        for made, shape, dtype in zip(self.op.outputs, shapes, types, strict=True):
            expect(made, shape, dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis == 0

    def emit(
        self, g: Builder, ys: tuple[View, ...], boxes: View, scores: View, *limits: View
    ) -> tuple[Value, ...]:
        _, count, own, classes = self._sizes
        of_each, of_all = self._box_limits
        _, _, overlap, least = limits
        by_class = g.Transpose(scores, perm=[0, 2, 1])
        # Where each class has boxes of its own, each is a batch.
        corners = g.reshape(g.Transpose(boxes, perm=[0, 2, 1, 3]), (-1, count, _CORNERS))
        rated = g.reshape(by_class, (-1, classes // own, count))
        found = g.NonMaxSuppression(
            corners, rated, g.ints([of_each]), overlap.reshape((1,)), least.reshape((1,))
        )
        nothing = g.Expand(g.scalar(-np.inf, _F32), g.Shape(rated))
        left = g.scatter_nd(nothing, found, g.GatherND(rated, found))
        best = min(of_all, classes * count)
        values, places = g.node_outputs(
            "TopK", 2, g.reshape(left, (-1, classes * count)), g.ints([best]), axis=1
        )
        there = g.Greater(values, g.scalar(-np.inf, _F32))
        size = g.scalar(count, DType.INT64)
        box = places if own > 1 else g.Mod(places, size)
        chosen = g.GatherND(
            g.reshape(corners, (-1, own * count, _CORNERS)),
            g.Unsqueeze(box, g.ints([2])),
            batch_dims=1,
        )
        if self.options.get("clip_boxes", True):
            chosen = g.Clip(chosen, g.scalar(0, _F32), g.scalar(1, _F32))
        zero = g.scalar(0, _F32)
        outputs = [
            g.Where(g.Unsqueeze(there, g.ints([2])), chosen, zero),
            g.Where(there, values, zero),
            g.Where(there, g.cast(g.Div(places, size), _F32), zero),
        ]
        number = g.reduce("ReduceSum", g.cast(there, DType.INT64), [1], keepdims=False)
        return (*(_pad_rows(g, y, best, of_all) for y in outputs), g.cast(number, DType.INT32))


def _pad_rows(g: Builder, value: Value, have: int, want: int) -> Value:
    """Return [batch, have, ...] as [batch, want, ...], filled up with 0."""
    if have == want:
        return value
    return g.Concat(value, g.Expand(g.scalar(0, _F32), _row_shape(g, value, want - have)), axis=1)


def _row_shape(g: Builder, value: Value, count: int) -> Value:
    """Return the shape of a value with so many rows."""
    shape = g.Shape(value)
    ahead = g.Slice(shape, g.ints([0]), g.ints([1]))
    behind = g.Slice(shape, g.ints([2]), g.ints([_CORNERS]))
    return g.Concat(ahead, g.ints([count]), behind, axis=0)
