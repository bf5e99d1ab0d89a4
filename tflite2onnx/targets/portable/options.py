"""The options for any runtime of ONNX."""

from __future__ import annotations

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = PORTABLE
