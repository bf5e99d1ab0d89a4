"""Convert TensorFlow Lite (LiteRT) models to ONNX."""

from tflite2onnx.convert import Result, convert
from tflite2onnx.errors import ConversionError

__all__ = ["ConversionError", "Result", "convert"]
