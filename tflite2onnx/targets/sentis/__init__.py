"""Unity Sentis."""

from tflite2onnx.targets.presets import ROUNDED

OPTIONS = {**ROUNDED, "opset": 15}
