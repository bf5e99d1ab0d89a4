"""Hailo's compiler."""

from tflite2onnx.targets.presets import FLOAT

OPTIONS = FLOAT
