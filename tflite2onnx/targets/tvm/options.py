"""The options for TVM."""

from __future__ import annotations

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = PORTABLE
