"""MediaPipe's algorithm for faces in numpy: what the converted detector is compared with."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = npt.NDArray[Any]

ROOT = Path(__file__).parents[2]
FACES = SimpleNamespace(**run_path(str(ROOT / "examples" / "faces.py")))
SCORE, OVERLAP = 0.5, 0.3  # limits: a face, and boxes of the same face


def anchors(size: int = 128, strides: Sequence[int] = (8, 16, 16, 16)) -> Array:
    """Return the centres of BlazeFace's 896 anchors, [n, 2] from 0 to 1, x first.

    Each layer of the network has two anchors at each place of its feature map. Layers with equal
    strides share a map, so that their anchors are adjacent. (SsdAnchorsCalculator of MediaPipe,
    with the options of the short-range face detector: fixed anchor size, one aspect ratio.)
    """
    found = []
    for stride in dict.fromkeys(strides):
        places = size // stride
        centres = (np.arange(places) + 0.5) / places
        y, x = np.meshgrid(centres, centres, indexing="ij")
        each = 2 * strides.count(stride)
        found.append(np.repeat(np.stack([x, y], -1).reshape(-1, 2), each, axis=0))
    return np.concatenate(found)


def detect_face(network: Any, picture: Array) -> tuple[float, Array, Array]:
    """Return the best face's score, its box [4] and its six key points, [6, 2] in pixels.

    The best box is averaged with the boxes that overlap it, weighted by their scores, as in
    MediaPipe's weighted non-maximum suppression.
    """
    height, width, _ = picture.shape
    whole = FACES.Region(width / 2, height / 2, max(width, height), 0)
    made = network.run(FACES.cut_region(picture, whole, network.size)[None] * 2 - 1)
    centres = anchors(network.size)
    logits = np.clip(made[len(centres)].reshape(-1), -80, 80)  # so that exp does not overflow
    scores = 1 / (1 + np.exp(-logits))
    boxes = made[16 * len(centres)].reshape(-1, 8, 2) / network.size  # centre, size, six points
    boxes[:, 0] += centres
    boxes[:, 2:] += centres[:, None]
    best = int(scores.argmax())
    same = (_overlap(boxes[best], boxes) >= OVERLAP) & (scores >= SCORE)
    same[best] = True
    mean = np.average(boxes[same], axis=0, weights=scores[same])
    corner = np.array([whole.x, whole.y]) - whole.side / 2
    box = np.array([mean[0] - mean[1] / 2, mean[0] + mean[1] / 2])
    in_pixels = [corner + each * whole.side for each in (box, mean[2:])]
    return float(scores[best]), in_pixels[0].reshape(-1), in_pixels[1]


def _overlap(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box and others, [.., 8, 2]: centre, size, points."""
    low = np.maximum(box[0] - box[1] / 2, others[:, 0] - others[:, 1] / 2)
    high = np.minimum(box[0] + box[1] / 2, others[:, 0] + others[:, 1] / 2)
    shared = np.clip(high - low, 0, None).prod(-1)
    return np.asarray(shared / (box[1].prod() + others[:, 1].prod(-1) - shared))
