"""TensorFlow's multi-class non-maximum suppression, the last operator of detectors."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.operators import (
    Builder,
    DType,
    DynamicShape,
    OperatorError,
    OutputShape,
    Value,
    View,
    check_element_count,
    integer,
)

_CORNERS = 4
_F32 = DType.FLOAT32


class FlexCombinedSuppression(DynamicShape):
    """FlexCombinedNonMaxSuppression: the best boxes of each class, then of all classes.

    A box is dropped if its overlap with a better box of its class is greater than a threshold, or
    if its score is not greater than another threshold. Elements of the outputs after the last box
    are 0. The order of equal scores is unspecified.
    """

    codes = ("FlexCombinedNonMaxSuppression",)
    tflite = "NKGB, NKC -> NMB, NM, NM, N"
    dynamic_axes = "N"
    operands = (
        "float32 [batch boxes each 4], float32 [batch boxes classes], any, any, float32 [],"
        "float32 [] -> float32, float32, float32, int32"
    )

    @cached_property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The sizes of batch, boxes, classes with own boxes (1: shared boxes), and classes."""
        boxes, scores = self.input(0), self.input(1)
        (batch, count, box_classes, _), (*_, classes) = boxes.shape, scores.shape
        if box_classes not in (1, classes) or 0 in (batch, count, classes):
            raise OperatorError(
                f"boxes and scores must be [batch, boxes, 1 or classes, 4] and [batch, boxes, "
                f"classes], got {list(boxes.shape)} and {list(scores.shape)}"
            )
        return batch, count, box_classes, classes

    @cached_property
    def _box_limits(self) -> tuple[int, int]:
        """The maximum number of boxes per class, and in total."""
        per_class, total = integer(self, 2), integer(self, 3)
        if min(per_class, total) < 1:
            raise OperatorError(
                f"the numbers of boxes per class and in total must be positive, got "
                f"{per_class} and {total}"
            )
        check_element_count(total)
        if self.options.get("pad_per_class", False):
            total = min(total, per_class * self._sizes[3])
        return per_class, total

    def infer_outputs(self) -> Sequence[OutputShape]:
        batch, total = self._sizes[0], self._box_limits[1]
        return [(batch, total, _CORNERS), (batch, total), (batch, total), (batch,)]

    def emit(
        self, g: Builder, ys: tuple[View, ...], boxes: View, scores: View, *limits: View
    ) -> tuple[Value, ...]:
        _, count, box_classes, classes = self._sizes
        per_class, total = self._box_limits
        _, _, overlap, minimum = limits
        by_class = g.Transpose(scores, perm=[0, 2, 1])
        # If each class has its own boxes, the classes become elements of the batch.
        corners = g.reshape(g.Transpose(boxes, perm=[0, 2, 1, 3]), (-1, count, _CORNERS))
        box_scores = g.reshape(by_class, (-1, classes // box_classes, count))
        selected = g.NonMaxSuppression(
            corners, box_scores, [per_class], overlap.reshape((1,)), minimum.reshape((1,))
        )
        dropped = g.Expand(g.scalar(-np.inf, _F32), g.Shape(box_scores))
        remaining = g.scatter_nd(dropped, selected, g.GatherND(box_scores, selected))
        best = min(total, classes * count)
        values, places = g.node_outputs(
            "TopK", 2, g.reshape(remaining, (-1, classes * count)), [best], axis=1
        )
        is_valid = g.Greater(values, g.scalar(-np.inf, _F32))
        box = places if box_classes > 1 else g.Mod(places, count)
        kept_boxes = g.GatherND(
            g.reshape(corners, (-1, box_classes * count, _CORNERS)),
            g.Unsqueeze(box, [2]),
            batch_dims=1,
        )
        if self.options.get("clip_boxes", True):
            kept_boxes = g.Clip(kept_boxes, g.scalar(0, _F32), g.scalar(1, _F32))
        zero = g.scalar(0, _F32)
        outputs = [
            g.Where(g.Unsqueeze(is_valid, [2]), kept_boxes, zero),
            g.Where(is_valid, values, zero),
            g.Where(is_valid, g.cast(g.Div(places, count), _F32), zero),
        ]
        number = g.reduce("ReduceSum", g.cast(is_valid, DType.INT64), [1], keepdims=False)
        return (*(_pad_rows(g, y, best, total) for y in outputs), g.cast(number, DType.INT32))


def _pad_rows(g: Builder, value: Value, present: int, wanted_rows: int) -> Value:
    """Return [batch, present, ...] as [batch, wanted_rows, ...], padded with 0."""
    if present == wanted_rows:
        return value
    shape, zero = g.Shape(value), g.scalar(0, _F32)
    batch = g.Slice(shape, [0], [1])
    trailing = g.Slice(shape, [2], [_CORNERS])
    missing = g.Concat(batch, [wanted_rows - present], trailing, axis=0)
    return g.Concat(value, g.Expand(zero, missing), axis=1)
