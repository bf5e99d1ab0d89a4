"""tract."""

from tflite2onnx.targets.presets import ROUNDED

OPTIONS = ROUNDED
