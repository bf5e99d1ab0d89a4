"""CoreML."""

from tflite2onnx.targets.presets import FLOAT

ALIASES = ("ios", "iphone", "apple", "ane", "npu")
OPTIONS = FLOAT
