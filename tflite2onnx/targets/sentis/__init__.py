"""Unity Sentis."""

from tflite2onnx.targets.presets import ROUNDED

ALIASES = ("unity",)
OPTIONS = {**ROUNDED, "opset": 15}
