"""Single-shot detectors of TensorFlow's object detection API, with or without their last operator.

The outputs of TFLite_Detection_PostProcess are decoded, and suppressed boxes are removed. Without
this operator there are two outputs: the encodings of boxes [1, n, 4] and the scores of classes
[1, n, classes], the first of which is the background. The anchors, scales and limits are taken from
MediaPipe's object detection
(mediapipe/graphs/object_detection/object_detection_desktop_live.pbtxt).
"""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.pictures.anchors import AnchorOptions, make_anchors
from tflite2onnx.pictures.boxes import Candidates, Detections
from tflite2onnx.tensor import Array, DType, Shape

THRESHOLD, IOU = 0.6, 0.4
OPERATOR_THRESHOLD = 0.5  # the threshold of TensorFlow's examples
OPERATOR = "TFLite_Detection_PostProcess"
_STRIDES = (16, 32, 64, 128, 256, 512)
_RATIOS = (1.0, 2.0, 0.5, 3.0, 0.3333)
_SCALES = (10.0, 10.0, 5.0, 5.0)  # the scales of y, x, height, width
_CORNERS = 4


def find_ssd_anchors(size: tuple[int, int] | None, shapes: Sequence[Shape]) -> Array | None:
    """Return the anchors of two outputs, None if they are not the outputs of such a detector."""
    if size is None or len(shapes) != 2 or any(len(s) != 3 or s[0] != 1 for s in shapes):
        return None
    if shapes[0][1] != shapes[1][1] or _CORNERS not in (shapes[0][2], shapes[1][2]):
        return None
    options = AnchorOptions(size, _STRIDES, (0.2, 0.95), _RATIOS, fixed=False, reduced=True)
    anchors = make_anchors(options)
    return anchors if len(anchors) == shapes[0][1] else None


def decode_ssd(g: Nodes, encodings: Value, scores: Value, anchors: Array) -> Candidates:
    """Return the boxes of encodings, float32 [1, n, 4], and of scores, float32 [1, n, classes]."""
    origins, extents = (np.ascontiguousarray(anchors[:, i : i + 2]) for i in (0, 2))
    numbers = g.Div(g.Squeeze(encodings, [0]), np.array(_SCALES, np.float32))
    # From y, x, height, width to x, y, width, height.
    numbers = g.Gather(numbers, [1, 0, 3, 2], axis=1)
    places, sizes = g.node_outputs("Split", 2, numbers, [2, 2], axis=1)
    middle = g.Add(g.Mul(places, extents), origins)
    half = g.Mul(g.Mul(g.Exp(sizes), extents), g.scalar(0.5, DType.FLOAT32))
    boxes = g.Concat(g.Sub(middle, half), g.Add(middle, half), axis=1)
    by_class = g.Transpose(g.Squeeze(scores, [0]), perm=[1, 0])
    last = g.ints([np.iinfo(np.int64).max])
    return Candidates(boxes, g.Slice(by_class, [1], last, [0]))


def read_detections(g: Nodes, outputs: Sequence[Value], threshold: float) -> Detections:
    """Return the detections of TFLite_Detection_PostProcess above a threshold.

    Its outputs are boxes [1, n, 4] (top, left, bottom, right), classes and scores [1, n], and the
    number of detections [1]; elements after the last detection are 0.
    """
    boxes, classes, scores, number = outputs
    scores = g.Reshape(scores, [-1])
    places = g.Range(*(g.cast(x, DType.INT64) for x in _emit_range(g, scores)))
    count = g.cast(g.Reshape(number, [1]), DType.INT64)
    is_above = g.And(g.Less(places, count), g.Greater(scores, g.scalar(threshold, DType.FLOAT32)))
    boxes = g.Gather(g.Reshape(boxes, [-1, _CORNERS]), [1, 0, 3, 2], axis=1)
    classes = g.cast(g.Reshape(classes, [-1]), DType.INT64)
    return Detections(*(g.Compress(x, is_above, axis=0) for x in (boxes, scores, classes)))


def _emit_range(g: Nodes, x: Value) -> tuple[Value, Value, Value]:
    """Return the start, the end and the step of a range over the elements of x."""
    zero, one = (g.scalar(number, DType.INT64) for number in (0, 1))
    return zero, g.Size(x), one
