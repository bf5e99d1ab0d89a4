"""Hailo's compiler."""

from tflite2onnx.targets.presets import FLOAT

ALIASES = ("npu",)
OPTIONS = FLOAT
