"""TFLite_Detection_PostProcess: the boxes, classes and scores that a detector's head stands for.

What its kernel does and ONNX's NonMaxSuppression does not:

- it keeps scores that are no less than the threshold, where ONNX keeps those above it: the
  float32 number next below the threshold makes these the same;
- it merges what it found in each class by score, or finds boxes by the best class of each and
  reports the best few classes of these;
- its outputs have room for as many detections as there may be; what is left over is 0.

Of equal scores the first box wins, and of boxes the first class, in both. (With several classes
per box the kernel's order of equal classes is that of std::partial_sort, which is anyone's guess.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import Array, DType, Shape

_CORNERS = 4
_PER_CLASS = 100  # what the kernel takes where the options do not say


class _Found(NamedTuple):
    """What is found: boxes by index [n, 1], and k classes of each with their scores [n, k].

    `slots` [n, k] are the ones that may hold something, numbered by box; those below `number`,
    an int64 [1], do.
    """

    boxes: Value
    classes: Value
    scores: Value
    number: Value
    slots: Array


class DetectionPostProcess(Operator):
    """TFLite_Detection_PostProcess: decodes boxes, and drops those that overlap better ones."""

    codes = ("TFLite_Detection_PostProcess",)
    custom = True
    category = Category.IMPLICIT
    returns_tuple = True

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """The most boxes to report, and the classes to report of each."""
        boxes = int(self.options.get("max_detections", 0))
        classes = int(self.options.get("max_classes_per_detection", 0))
        if boxes < 1 or classes < 1:
            raise OperatorError(f"{boxes} detections of {classes} classes each")
        check_element_count(boxes * classes * _CORNERS)
        return boxes, classes

    @property
    def _classwise(self) -> bool:
        return bool(self.options.get("use_regular_nms", False))

    @property
    def _classes(self) -> int:
        return int(self.options.get("num_classes", 0))

    @cached_property
    def _most_per_class(self) -> int:
        most = int(self.options.get("detections_per_class", _PER_CLASS))
        return min(most, self._sizes[0])

    def _number_option(self, name: str) -> np.float32:
        return np.float32(self.options.get(name, 0))

    def infer_outputs(self) -> Sequence[Shape]:
        # Regular suppression reports one class of each box, but the outputs are no smaller.
        boxes, classes = self._sizes
        room = boxes * classes
        return [(1, room, _CORNERS), (1, room), (1, room), (1,)]

    def check(self) -> None:
        if len(self.op.inputs) != 3 or len(self.op.outputs) != 4:
            counts = len(self.op.inputs), len(self.op.outputs)
            raise OperatorError("{} inputs and {} outputs, not 3 and 4".format(*counts))
        for tensor, shape in zip(self.op.outputs, self.infer_outputs(), strict=True):
            expect(tensor, shape, DType.FLOAT32)
        self._check_operands()
        threshold = self._number_option("nms_iou_threshold")
        if not 0 < threshold <= 1:
            raise OperatorError(
                f"boxes that overlap by {threshold} of their union are to be dropped"
            )
        if self._classwise and self._most_per_class < 1:
            raise OperatorError(f"{self._most_per_class} detections per class")

    def _check_operands(self) -> None:
        boxes, scores, anchors = (self.input(i) for i in range(3))
        for tensor in (boxes, scores, anchors):
            if tensor.dtype is not DType.FLOAT32 and not (
                tensor.dtype is DType.UINT8 and is_quantized(tensor)
            ):
                found = tensor.dtype.label
                raise OperatorError(
                    f"{tensor.name} is {found}, neither float32 nor quantized uint8"
                )
        number = anchors.shape[0] if anchors.rank else 0
        fits = (
            boxes.rank == scores.rank == 3
            and anchors.shape == (number, _CORNERS)
            and boxes.shape[:2] == scores.shape[:2] == (1, number)
            and boxes.shape[2] >= _CORNERS
            and number > 0
        )
        if not fits or boxes.dtype is not anchors.dtype:
            shapes = [f"{t.dtype.label}{list(t.shape)}" for t in (boxes, scores, anchors)]
            raise OperatorError(f"boxes, scores and anchors are {', '.join(shapes)}")
        if self._classes < 1 or scores.shape[2] - self._classes not in (0, 1):
            raise OperatorError(
                f"{scores.shape[2]} scores for {self._classes} classes and a background"
            )

    def frames(self) -> Sequence[Frame]:
        # NonMaxSuppression wants the scores of a class together: [1, classes, boxes].
        names = axis_names(3)
        return [Frame({1: names}, names, ("0", "2", "1"))]

    def emit(
        self, g: Builder, ys: tuple[View, ...], encoded: View, scores: View, anchors: View
    ) -> tuple[Value, ...]:
        corners = self._corners(g, encoded, anchors)
        kept = scores.value
        if scores.shape[1] > self._classes:  # the first class is the background
            kept = g.Slice(scores, g.ints([1]), g.ints([scores.shape[1]]), g.ints([1]))
        find = self._detect_by_class if self._classwise else self._detect_by_box
        found = find(g, corners, kept)
        taken = g.Less(found.slots, found.number)
        zero = g.scalar(0, DType.FLOAT32)
        made = (
            g.Where(g.Unsqueeze(taken, g.ints([2])), g.Gather(corners, found.boxes, axis=1), zero),
            g.Where(taken, g.cast(found.classes, DType.FLOAT32), zero),
            g.Where(taken, found.scores, zero),
        )
        shaped = [g.reshape(v, y.shape) for v, y in zip(made, ys, strict=False)]
        return (*shaped, g.cast(found.number, DType.FLOAT32))

    def _corners(self, g: Builder, encoded: View, anchors: View) -> Value:
        """Return the boxes as (ymin, xmin, ymax, xmax), float32 [1, n, 4].

        The kernel computes centres and half sizes in double precision, and rounds these. Boxes
        that overlap by just about the threshold are told apart in no other way.
        """
        places, sizes = self._halves(g, encoded, 2)
        origins, extents = self._halves(g, anchors, 1)
        by_place, by_size = (
            np.array([self._number_option(f"{axis}_scale") for axis in axes], np.float64)
            for axes in ("yx", "hw")
        )
        middle = g.Add(g.Mul(g.Div(places, by_place), extents), origins)
        grown = g.Mul(g.scalar(0.5, DType.FLOAT64), g.Exp(g.Div(sizes, by_size)))
        middle, half = (g.cast(v, DType.FLOAT32) for v in (middle, g.Mul(grown, extents)))
        return g.Concat(g.Sub(middle, half), g.Add(middle, half), axis=2)

    @staticmethod
    def _halves(g: Builder, x: View, axis: int) -> tuple[Value, ...]:
        """Return (y, x) and (height, width) as doubles; what stands behind them is not read."""
        value = x.value
        if x.shape[axis] > _CORNERS:
            value = g.Slice(value, g.ints([0]), g.ints([_CORNERS]), g.ints([axis]))
        return g.node_outputs("Split", 2, g.cast(value, DType.FLOAT64), g.ints([2, 2]), axis=axis)

    def _suppress_boxes(self, g: Builder, corners: Value, scores: Value, most: int) -> Value:
        """Return (0, class, box) of all boxes that are found, int64 [m, 3].

        They come class by class, at most so many of each, the best ones first.
        """
        below = np.nextafter(self._number_option("nms_score_threshold"), np.float32(-np.inf))
        overlap = self._number_option("nms_iou_threshold")
        thresholds = (g.constant(np.array([t], np.float32)) for t in (overlap, below))
        return g.NonMaxSuppression(corners, scores, g.ints([most]), *thresholds)

    def _detect_by_class(self, g: Builder, corners: Value, scores: Value) -> _Found:
        """Find boxes in each class for itself, and report the best of all."""
        most, classes = self._sizes
        room = most * classes
        chosen = self._suppress_boxes(g, corners, scores, self._most_per_class)
        best = g.GatherND(scores, chosen)
        # There may be fewer than there is room for; TopK wants as many as it is to return.
        lowest = g.scalar(-np.inf, DType.FLOAT32)
        padded = g.Pad(best, g.ints([0, room]), lowest)
        values, places = g.node_outputs("TopK", 2, padded, g.ints([room]), axis=0)
        picked = g.Gather(g.Pad(chosen, g.ints([0, 0, room, 0])), places)
        _, numbers, boxes = g.node_outputs("Split", 3, picked, g.ints([1, 1, 1]), axis=1)
        count = g.Min(g.Shape(best), g.ints([most]))
        slots = np.arange(room).reshape(room, 1)
        return _Found(boxes, numbers, g.Unsqueeze(values, g.ints([1])), count, slots)

    def _detect_by_box(self, g: Builder, corners: Value, scores: Value) -> _Found:
        """Find boxes by the best class of each, and report the best few classes of these."""
        most, room = self._sizes
        classes = min(room, self._classes)
        best = g.reduce("ReduceMax", scores, [1], keepdims=True)
        chosen = self._suppress_boxes(g, corners, best, most)
        boxes = g.Slice(chosen, g.ints([2]), g.ints([3]), g.ints([1]))
        count = g.Slice(g.Shape(boxes), g.ints([0]), g.ints([1]))
        boxes = g.Slice(g.Pad(boxes, g.ints([0, 0, most, 0])), g.ints([0]), g.ints([most]))
        of_each = g.reshape(g.Gather(scores, boxes, axis=2), [self._classes, most])
        tops = g.node_outputs(
            "TopK", 2, g.Transpose(of_each, perm=[1, 0]), g.ints([classes]), axis=1
        )
        if room > classes:
            tops = tuple(g.Pad(v, g.ints([0, 0, 0, room - classes])) for v in tops)
        slots = np.where(np.arange(room) < classes, np.arange(most).reshape(most, 1), most)
        return _Found(boxes, tops[1], tops[0], count, slots)
