"""The options for RKNN."""

from __future__ import annotations

from tflite2onnx.targets.presets import NPU

OPTIONS = {**NPU, "activations": "int8"}
