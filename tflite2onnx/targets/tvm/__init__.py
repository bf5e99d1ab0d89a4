"""TVM."""

from tflite2onnx.targets.presets import PORTABLE

OPTIONS = PORTABLE
