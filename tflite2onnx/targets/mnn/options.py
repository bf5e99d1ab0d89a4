"""The options for MNN."""

from __future__ import annotations

from tflite2onnx.targets.presets import ROUNDED

OPTIONS = ROUNDED
