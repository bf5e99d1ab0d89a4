"""CombinedNonMaxSuppression. LiteRT has no kernel for it, so numpy is the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.references.flex import build_flex
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

OVERLAP, LEAST = np.float32(0.3), np.float32(0.2)


def boxes_of(*shape: int) -> Any:
    corners = np.random.default_rng(0).uniform(-0.2, 1.2, (*shape, 2, 2))
    return np.sort(corners, -2).reshape(*shape, 4).astype(np.float32)


def overlap(a: Any, b: Any) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / (float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - shared)


def suppress_class(boxes: Any, scores: Any, most: int) -> list[int]:
    """Return the indices of the chosen boxes of one class, by greedy suppression."""
    found: list[int] = []
    for i in np.argsort(-scores):
        fits = all(overlap(boxes[i], boxes[k]) <= OVERLAP for k in found)
        if fits and scores[i] > LEAST and len(found) < most:
            found.append(int(i))
    return found


def combine_classes(boxes: Any, scores: Any, of_each: int, of_all: int, *, clip: bool) -> list[Any]:
    """Return the best boxes of all classes by falling score, and their number."""
    made = [np.zeros((len(boxes), of_all, *rest), np.float32) for rest in ((4,), (), ())]
    counts = np.zeros(len(boxes), np.int32)
    for n, (own, rated) in enumerate(zip(boxes, scores, strict=True)):
        found = [
            (rated[i, k], k, own[i, min(k, own.shape[1] - 1)])
            for k in range(rated.shape[1])
            for i in suppress_class(own[:, min(k, own.shape[1] - 1)], rated[:, k], of_each)
        ]
        found = sorted(found, key=lambda each: -each[0])[:of_all]
        counts[n] = len(found)
        for i, (score, k, box) in enumerate(found):
            made[0][n, i] = np.clip(box, 0, 1) if clip else box
            made[1][n, i], made[2][n, i] = score, k
    return [*made, counts]


# The limits of boxes for each class and in total, and the options for padding and clipping.
LIMITS = [(5, 7, False, True), (2, 10, True, False), (20, 100, False, False), (3, 4, False, True)]


@pytest.mark.parametrize("own", [1, 3])
@pytest.mark.parametrize(("of_each", "of_all", "pad", "clip"), LIMITS)
def test_boxes_of_all_classes_equal_numpy(
    own: int, of_each: int, of_all: int, *, pad: bool, clip: bool
) -> None:
    boxes = boxes_of(2, 23, own)
    scores = np.random.default_rng(1).uniform(0, 1, (2, 23, 3)).astype(np.float32)
    total = min(of_all, of_each * 3) if pad else of_all
    want = combine_classes(boxes, scores, of_each, total, clip=clip)
    limits = [np.array(of_each, np.int32), np.array(of_all, np.int32), OVERLAP, LEAST]
    model = build_flex(
        "CombinedNonMaxSuppression",
        [boxes, scores],
        want,
        [np.asarray(x) for x in limits],
        pad_per_class=pad,
        clip_boxes=clip,
    )
    check_reference(model, [boxes, scores], want)


@pytest.mark.parametrize(
    ("shapes", "most", "reason"),
    [
        ([(2, 5, 2, 4), (2, 5, 3)], (5, 7), "boxes and scores must be"),
        ([(2, 5, 4), (2, 5, 3)], (5, 7), r"must be float32\[batch, boxes, each, 4\]"),
        ([(2, 5, 1, 4), (2, 7, 3)], (5, 7), r"must be float32\["),
        ([(2, 5, 1, 4), (2, 5, 3)], (0, 7), "must be positive, got 0 and 7"),
    ],
)
def test_combined_nms_refuses_invalid_shapes_and_limits(
    shapes: Any, most: Any, reason: str
) -> None:
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    made = [np.zeros(shape, np.float32) for shape in ((2, 7, 4), (2, 7), (2, 7))]
    limits = [np.asarray(x) for x in (*map(np.int32, most), OVERLAP, LEAST)]
    model = build_flex("CombinedNonMaxSuppression", inputs, [*made, np.zeros(2, np.int32)], limits)
    with pytest.raises(ConversionError, match=reason):
        convert(model.bytes())


def test_refuses_too_few_outputs() -> None:
    inputs = [np.zeros((1, 5, 1, 4), np.float32), np.zeros((1, 5, 3), np.float32)]
    limits = [np.asarray(x) for x in (np.int32(2), np.int32(7), OVERLAP, LEAST)]
    made = [np.zeros((1, 7, 4), np.float32)]
    with pytest.raises(ConversionError, match="must have 4 outputs, got 1"):
        convert(build_flex("CombinedNonMaxSuppression", inputs, made, limits).bytes())
