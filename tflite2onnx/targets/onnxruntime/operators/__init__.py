"""Operators with the nodes that ONNX Runtime computes fastest, in place of the canonical ones."""

from __future__ import annotations

from tflite2onnx.op import OperatorTable

# By module. A class here is a subclass of the class of the canonical operator.
OPERATORS = OperatorTable(
    __name__,
    {
        "blocks": "DEPTH_TO_SPACE SPACE_TO_DEPTH",
        "dense": "FULLY_CONNECTED",
        "resize": "RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR",
        "softmax": "LOG_SOFTMAX SOFTMAX",
    },
)
