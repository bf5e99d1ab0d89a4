"""The outputs of YOLO networks that Ultralytics exports.

YOLOv8 and later, and YOLOv5u, have one output [1, 4 + classes, n]: centre, size and scores of each
box, in columns. YOLOv5 has [1, n, 5 + classes]: centre, size, the score of an object, and scores of
classes that are multiplied with it. Centres and sizes are fractions of the input: Ultralytics
divides them by the size for TFLite, other converters do not. The score of a box is the score of its
best class. Boxes end at the edges of the picture. https://docs.ultralytics.com/modes/export,
https://docs.ultralytics.com/modes/predict
"""

import ast
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Value
from tflite2onnx.errors import PictureError
from tflite2onnx.pictures.boxes import Candidates
from tflite2onnx.tensor import DType, Shape

# The defaults of Ultralytics' predict.py and of YOLOv5's detect.py.
THRESHOLD = 0.25
IOU = {"yolov8": 0.7, "yolov5": 0.45}
PREPROCESSING = {"mean": (0.0,), "std": (255.0,), "resize": "letterbox", "pad": 114}
_STRIDES = (8, 16, 32)
_FILES = ("metadata.json", "temp_meta.txt")
_BEFORE = {"yolov8": 4, "yolov5": 5}  # numbers of a box before its classes
_ANCHORS = {"yolov8": 1, "yolov5": 3}  # boxes at each position


def find_yolo(size: tuple[int, int] | None, shape: Shape) -> str:
    """Return the form of an output for an input of a size, "" if it is not a YOLO output."""
    if size is None or len(shape) != 3:
        return ""
    places = sum((size[0] // stride) * (size[1] // stride) for stride in _STRIDES)
    sides = {"yolov8": (shape[2], shape[1]), "yolov5": (shape[1], shape[2])}
    return next(
        (
            form
            for form, (boxes, numbers) in sides.items()
            if boxes == _ANCHORS[form] * places and numbers > _BEFORE[form]
        ),
        "",
    )


def decode_yolo(
    g: Nodes, output: Value, shape: Shape, form: str, size: tuple[int, int] | None
) -> Candidates:
    """Return the boxes of an output of a form, float32 of this shape.

    `size` is the height and the width of the input if the output has pixels instead of fractions.
    """
    columns = g.Squeeze(output, [0])
    numbers = shape[1]
    if form == "yolov5":
        columns = g.Transpose(columns, perm=[1, 0])
        numbers = shape[2]
    sizes = [2, 2, 1, numbers - 5] if form == "yolov5" else [2, 2, numbers - 4]
    middle, extent, *scores = g.node_outputs("Split", len(sizes), columns, g.ints(sizes), axis=0)
    if size is not None:
        pixels = np.array([[size[1]], [size[0]]], np.float32)
        middle, extent = g.Div(middle, pixels), g.Div(extent, pixels)
    half = g.Mul(extent, g.scalar(0.5, DType.FLOAT32))
    corners = g.Concat(g.Sub(middle, half), g.Add(middle, half), axis=0)
    boxes = g.Transpose(corners, perm=[1, 0])
    return Candidates(boxes, scores[0] if len(scores) == 1 else g.Mul(*scores))


def count_classes(shape: Shape, form: str) -> int:
    """Return the number of classes of an output in this form."""
    return (shape[1] if form == "yolov8" else shape[2]) - _BEFORE[form]


def read_ultralytics(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the data that Ultralytics packs with a model: its task, and its classes' names.

    The task is "" and the names are () if the files lack them.
    """
    text = next((files[name].decode("utf-8", "replace") for name in _FILES if name in files), "{}")
    try:
        # The file is JSON in newer versions, and the text of a Python dictionary in older versions.
        content = json.loads(text) if '"names"' in text else ast.literal_eval(text)
        named = {int(number): str(name) for number, name in content.get("names", {}).items()}
        task = str(content.get("task", ""))
    except (ValueError, SyntaxError, AttributeError, TypeError, MemoryError, RecursionError):
        return {"task": "", "names": ()}
    names = tuple(named[number] for number in sorted(named))
    return {"task": task, "names": names}


def check_task(task: str) -> None:
    """Raise PictureError unless a network detects boxes."""
    if task not in ("", "detect"):
        raise PictureError("postprocess", f"the task of YOLO must be detect, got {task}")
