"""TFLite_Detection_PostProcess: decode the output of a detector to boxes, classes and scores.

The kernel differs from ONNX's NonMaxSuppression in these points:

- The kernel keeps scores greater than or equal to the threshold; ONNX keeps scores above the
  threshold. The threshold of the ONNX node is therefore the next smaller float32 number.
- The regular suppression of the kernel selects boxes per class and merges the classes by score.
  The fast suppression selects boxes by their best class, and reports several classes of each.
- The outputs of the kernel have static shapes. Elements after the last detection are 0.

Of equal scores the first box comes first, and of equal classes the first class, in the kernel and
in ONNX. (With several classes per box the kernel sorts with std::partial_sort, whose order of equal
classes is unspecified.)
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, Category, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.common.runtime_shapes import AXIS_END
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import require_equal

_CORNERS = 4
_PER_CLASS = 100  # the default of detections_per_class in the kernel


class _SelectedBoxes(NamedTuple):
    """Selected boxes.

    Attributes:
        boxes: int64 [n, 1], the indices of the boxes.
        classes, scores: [n, k], the k best classes of each box and their scores.
        number: int64 [1], the number of detections.
        slots: int64 [n, k], the detection to which each element belongs. An element is valid if
            its slot is less than `number`.
    """

    boxes: Value
    classes: Value
    scores: Value
    number: Value
    slots: Array


class DetectionPostProcess(DynamicShape):
    """TFLite_Detection_PostProcess: decode boxes, and drop boxes that overlap better boxes."""

    codes = ("TFLite_Detection_PostProcess",)
    category = Category.IMPLICIT
    operands = "any, any, any -> float32, float32, float32, float32"
    precision = DType.FLOAT64  # of the kernel that decodes boxes

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        """The maximum number of boxes to report, and the number of classes of each box."""
        boxes = int(self.options.get("max_detections", 0))
        classes = int(self.options.get("max_classes_per_detection", 0))
        if boxes < 1 or classes < 1:
            raise OperatorError(
                f"max_detections and max_classes_per_detection must be positive, got {boxes} and "
                f"{classes}"
            )
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
        limit = int(self.options.get("detections_per_class", _PER_CLASS))
        return min(limit, self._sizes[0])

    def _read_number(self, name: str) -> np.float32:
        return np.float32(self.options.get(name, 0))

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        """Return whether an axis counts the boxes, or has elements that are not read."""
        return (operand, axis) in {(0, 1), (0, 2), (1, 1), (1, 2), (2, 0)}

    def infer_outputs(self) -> Sequence[OutputShape]:
        boxes, scores, anchors = (self.input(i).shape for i in range(3))
        if len(boxes) == len(scores) == 3 and len(anchors) == 2:
            require_equal(require_equal(boxes[1], scores[1]), anchors[0])
            # The kernel requires single batches and four numbers for each anchor.
            require_equal(boxes[0], 1, f"{self.input(0).name} must be a batch of 1")
            require_equal(scores[0], 1, f"{self.input(1).name} must be a batch of 1")
            require_equal(anchors[1], _CORNERS, f"{self.input(2).name} must have the axes [n, 4]")
        # Regular suppression finds fewer boxes, but its outputs have the same size.
        limit, classes = self._sizes
        capacity = limit * classes
        return [(1, capacity, _CORNERS), (1, capacity), (1, capacity), (1,)]

    def check(self) -> None:
        self._check_operands()
        threshold = self._read_number("nms_iou_threshold")
        if not 0 < threshold <= 1:
            raise OperatorError(
                f"nms_iou_threshold must be greater than 0 and at most 1, got {threshold}"
            )
        if self._classwise and (limit := self._most_per_class) < 1:
            raise OperatorError(f"detections_per_class must be positive, got {limit}")

    def _check_operands(self) -> None:
        boxes, scores, anchors = (self.input(i) for i in range(3))
        for tensor in (boxes, scores, anchors):
            name, dtype = tensor.name, tensor.dtype
            is_byte = dtype is DType.UINT8 and is_quantized(tensor)
            if dtype is not DType.FLOAT32 and not is_byte:
                raise OperatorError(f"{name} must be float32 or quantized uint8, got {dtype.label}")
        number = anchors.sizes[0] if anchors.rank else 0
        shapes_match = (
            boxes.rank == scores.rank == 3
            and anchors.sizes == (number, _CORNERS)
            and boxes.sizes[:2] == scores.sizes[:2] == (1, number)
            and (2 in boxes.symbols or boxes.shape[2] >= _CORNERS)
            and number != 0
        )
        if not shapes_match or boxes.dtype is not anchors.dtype:
            shapes = [f"{t.dtype.label}{list(t.shape)}" for t in (boxes, scores, anchors)]
            raise OperatorError(
                f"boxes, scores and anchors must be [1, n, 4], [1, n, classes] and [n, 4], got "
                f"{', '.join(shapes)}"
            )
        has_scores = 2 in scores.symbols or scores.shape[2] - self._classes in (0, 1)
        if self._classes < 1 or not has_scores:
            raise OperatorError(
                f"each box must have a score for each of the {self._classes} classes "
                f"(num_classes) and optionally for the background, got {scores.shape[2]} scores"
            )

    def frames(self) -> Sequence[Frame]:
        names = axis_names(3)  # NonMaxSuppression requires scores of shape [1, classes, boxes].
        return [Frame({1: names}, names, ("0", "2", "1"))]

    def emit(
        self, g: Builder, ys: tuple[View, ...], encoded: View, scores: View, anchors: View
    ) -> tuple[Value, ...]:
        corners = self._decode_corners(g, encoded, anchors)
        class_scores = scores.value
        if scores.sizes[1] != self._classes:  # the background is the first class
            class_scores = g.Slice(scores, [-self._classes], [AXIS_END], [1])
        detect = self._detect_by_class if self._classwise else self._detect_by_box
        detections = detect(g, corners, class_scores)
        is_valid = g.Less(detections.slots, detections.number)
        zero = g.scalar(0, DType.FLOAT32)
        is_box = g.Unsqueeze(is_valid, [2])
        values = (
            g.Where(is_box, g.Gather(corners, detections.boxes, axis=1), zero),
            g.Where(is_valid, g.cast(detections.classes, DType.FLOAT32), zero),
            g.Where(is_valid, detections.scores, zero),
        )
        outputs = [g.reshape(v, y.shape) for v, y in zip(values, ys, strict=False)]
        return (*outputs, g.cast(detections.number, DType.FLOAT32))

    def _decode_corners(self, g: Builder, encoded: View, anchors: View) -> Value:
        """Return the boxes as (ymin, xmin, ymax, xmax), float32 [1, n, 4].

        The kernel computes centres and half sizes in double precision, and rounds them to float32.
        Boxes whose overlap is close to the threshold need the same precision here.
        """
        offsets, sizes = self._split_halves(g, encoded, 2)
        origins, extents = self._split_halves(g, anchors, 1)
        offset_scales, size_scales = (
            np.array([self._read_number(f"{axis}_scale") for axis in axes], self.precision.numpy)
            for axes in ("yx", "hw")
        )
        centers = g.Add(g.Mul(g.Div(offsets, offset_scales), extents), origins)
        half_sizes = g.Mul(g.scalar(0.5, self.precision), g.Exp(g.Div(sizes, size_scales)))
        exact = centers, g.Mul(half_sizes, extents)
        centers, half_extents = (g.cast(v, DType.FLOAT32) for v in exact)
        return g.Concat(g.Sub(centers, half_extents), g.Add(centers, half_extents), axis=2)

    def _split_halves(self, g: Builder, x: View, axis: int) -> tuple[Value, ...]:
        """Return (y, x) and (height, width), precise; further elements of the axis are unused."""
        value = x.value
        if x.sizes[axis] != _CORNERS:
            value = g.Slice(value, [0], [_CORNERS], [axis])
        precise = g.recast(value, DType.FLOAT32, self.precision)
        return g.node_outputs("Split", 2, precise, [2, 2], axis=axis)

    def _suppress_boxes(self, g: Builder, corners: Value, scores: Value, limit: int) -> Value:
        """Return (0, class, box) of all selected boxes, int64 [m, 3].

        The boxes are ordered by class, then by decreasing score, with at most `limit` per class.
        """
        below = np.nextafter(self._read_number("nms_score_threshold"), np.float32(-np.inf))
        overlap = self._read_number("nms_iou_threshold")
        thresholds = (g.constant(np.array([t], np.float32)) for t in (overlap, below))
        return g.NonMaxSuppression(corners, scores, [limit], *thresholds)

    def _detect_by_class(self, g: Builder, corners: Value, scores: Value) -> _SelectedBoxes:
        """Select boxes per class, and report the best boxes of all classes."""
        limit, classes = self._sizes
        capacity = limit * classes
        selected = self._suppress_boxes(g, corners, scores, self._most_per_class)
        best_scores = g.GatherND(scores, selected)
        # TopK needs at least k elements, and there may be fewer boxes.
        lowest = g.scalar(-np.inf, DType.FLOAT32)
        scores_padded = g.Pad(best_scores, [0, capacity], lowest)
        values, places = g.node_outputs("TopK", 2, scores_padded, [capacity], axis=0)
        best = g.Gather(g.Pad(selected, [0, 0, capacity, 0]), places)
        _, class_indices, boxes = g.node_outputs("Split", 3, best, [1, 1, 1], axis=1)
        count = g.Min(g.Shape(best_scores), [limit])
        slots = np.arange(capacity).reshape(capacity, 1)
        return _SelectedBoxes(boxes, class_indices, g.Unsqueeze(values, [1]), count, slots)

    def _detect_by_box(self, g: Builder, corners: Value, scores: Value) -> _SelectedBoxes:
        """Select boxes by their best class, and report several classes of each box."""
        limit, reported = self._sizes
        classes = min(reported, self._classes)
        best_scores = g.reduce("ReduceMax", scores, [1], keepdims=True)
        selected = self._suppress_boxes(g, corners, best_scores, limit)
        boxes = g.Slice(selected, [2], [3], [1])
        count = g.Slice(g.Shape(boxes), [0], [1])
        boxes = g.Slice(g.Pad(boxes, [0, 0, limit, 0]), [0], [limit])
        box_scores = g.reshape(g.Gather(scores, boxes, axis=2), [self._classes, limit])
        rows = g.Transpose(box_scores, perm=[1, 0])
        top_classes = g.node_outputs("TopK", 2, rows, [classes], axis=1)
        if reported > classes:
            pads = [0, 0, 0, reported - classes]
            top_classes = tuple(g.Pad(v, pads) for v in top_classes)
        slots = np.where(np.arange(reported) < classes, np.arange(limit).reshape(limit, 1), limit)
        return _SelectedBoxes(boxes, top_classes[1], top_classes[0], count, slots)
