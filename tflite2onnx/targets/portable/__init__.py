"""Models for any runtime of ONNX."""

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = PORTABLE
