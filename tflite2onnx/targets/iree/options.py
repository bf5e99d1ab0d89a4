"""The options for IREE."""

from __future__ import annotations

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = {**PORTABLE, "quantization": "rounded", "static": True}
