"""The options for Hailo's compiler."""

from __future__ import annotations

from tflite2onnx.targets.presets import FLOAT

OPTIONS = FLOAT
