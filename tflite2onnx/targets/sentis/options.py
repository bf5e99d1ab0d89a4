"""The options for Unity Sentis."""

from __future__ import annotations

from tflite2onnx.targets.presets import ROUNDED

OPTIONS = {**ROUNDED, "opset": 15}
