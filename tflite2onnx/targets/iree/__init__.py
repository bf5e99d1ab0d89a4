"""IREE."""

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = {**PORTABLE, "quantization": "rounded", "static": True}
