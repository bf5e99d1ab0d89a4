"""MediaPipe's detectors of faces, palms and poses: the options of its published graphs.

A face detector may have the options in its metadata. The published files have no options: the
shapes of the outputs and the size of the input identify a detector. `source` is the graph, a file
below mediapipe/ in https://github.com/google-ai-edge/mediapipe.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.pictures.anchors import AnchorOptions, make_anchors
from tflite2onnx.pictures.boxes import Candidates
from tflite2onnx.tensor import Array, DType, Shape

IOU = 0.3  # the option min_suppression_threshold of all graphs
_LIMIT = 100.0  # the option score_clipping_thresh of all graphs


class Detector(NamedTuple):
    """A published detector.

    `boxes` is the number of boxes, one for each anchor; each has `numbers`: centre, size, and key
    points. `low` is the input number for black; the number for white is 1. Boxes with a score of
    `threshold` or more are kept.
    """

    name: str
    size: int
    strides: tuple[int, ...]
    interpolated: float
    boxes: int
    numbers: int
    low: float
    threshold: float
    source: str

    @property
    def points(self) -> int:
        return self.numbers // 2 - 2

    @property
    def anchors(self) -> Array:
        """The anchors, float32 [n, 4]."""
        size = (self.size, self.size)
        return make_anchors(AnchorOptions(size, self.strides, interpolated=self.interpolated))

    @property
    def preprocessing(self) -> dict[str, Any]:
        std = 255 / (1 - self.low)
        return {"mean": (-self.low * std,), "std": (std,), "resize": "center", "pad": 0}


_FACES = "modules/face_detection/face_detection"
DETECTORS: tuple[Detector, ...] = (
    Detector("faces", 128, (8, 16, 16, 16), 1, 896, 16, -1, 0.5, f"{_FACES}_short_range.pbtxt"),
    Detector("faces", 192, (4,), 0, 2304, 16, -1, 0.6, f"{_FACES}_full_range.pbtxt"),
    Detector(
        *("faces", 256, (16, 32, 32, 32), 1, 896, 16, -1, 0.65),
        "graphs/face_detection/face_detection_back_mobile_gpu.pbtxt at commit a9b643e0f",
    ),
    Detector(
        *("palms", 192, (8, 16, 16, 16), 1, 2016, 18, 0, 0.5),
        "modules/palm_detection/palm_detection_cpu.pbtxt",
    ),
    Detector(
        *("poses", 224, (8, 16, 32, 32, 32), 1, 2254, 12, -1, 0.5),
        "modules/pose_detection/pose_detection_cpu.pbtxt",
    ),
)


def find_detector(
    size: tuple[int, int] | None, shapes: Sequence[Shape], described: Mapping[str, Any]
) -> Detector | None:
    """Return the detector of an input and of outputs, None if there is none.

    `described` are options in the metadata of the model (`metadata.describe_face_detector`).
    """
    if len(shapes) != 2 or size is None:
        return None
    detectors = DETECTORS
    if described:
        strides = tuple(described["strides"])
        settings = {key: described[key] for key in ("interpolated", "boxes", "numbers")}
        faces = Detector("faces", size[0], strides, **settings, low=-1, threshold=0.5, source="")
        detectors = (faces, *DETECTORS)
    shapes_wanted = {tuple(shape) for shape in shapes}
    for entry in detectors:
        outputs = {(1, entry.boxes, entry.numbers), (1, entry.boxes, 1)}
        if (
            (entry.size, entry.size) == size
            and shapes_wanted == outputs
            and entry.boxes == len(entry.anchors)
        ):
            return entry
    return None


def decode_mediapipe(
    g: Nodes, raw: Value, logits: Value, detector: Detector
) -> tuple[Candidates, Value]:
    """Return the boxes of a detector, and their key points, float32 [n, points, 2].

    `raw` and `logits` are the outputs of the detector, float32 [1, n, numbers] and [1, n, 1]. The
    formulas are taken from TensorsToDetectionsCalculator
    (mediapipe/calculators/tensor/tensors_to_detections_calculator.cc).
    """
    n, pairs = detector.boxes, detector.numbers // 2
    numbers = g.Div(g.Reshape(raw, [n, pairs, 2]), g.scalar(detector.size, DType.FLOAT32))
    places, sizes, points = g.node_outputs("Split", 3, numbers, [1, 1, pairs - 2], axis=1)
    centres = np.ascontiguousarray(detector.anchors[:, None, :2])
    half = g.Mul(sizes, g.scalar(0.5, DType.FLOAT32))
    middle = g.Add(places, centres)
    corners = g.Concat(g.Sub(middle, half), g.Add(middle, half), axis=1)
    clipped = g.Clip(logits, *(g.scalar(limit, DType.FLOAT32) for limit in (-_LIMIT, _LIMIT)))
    scores = g.Reshape(g.Sigmoid(clipped), [1, n])
    boxes = g.Reshape(corners, [n, 4])
    return Candidates(boxes, scores), g.Add(points, centres)
