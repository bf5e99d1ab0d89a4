"""The options for CoreML."""

from __future__ import annotations

from tflite2onnx.targets.presets import FLOAT

OPTIONS = FLOAT
