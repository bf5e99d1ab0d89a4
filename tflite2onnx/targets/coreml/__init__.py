"""CoreML."""

from tflite2onnx.targets.presets import FLOAT

ALIASES = ("ios",)
OPTIONS = FLOAT
