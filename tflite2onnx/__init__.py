"""Convert TensorFlow Lite (LiteRT) models to ONNX."""

from tflite2onnx.ancestor import enableDebugLog, getSupportedOperators
from tflite2onnx.convert import Result, convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.interface import Endpoint
from tflite2onnx.op import supported_operators
from tflite2onnx.version import VERSION

__version__ = VERSION

__all__ = [
    "ConversionError",
    "Endpoint",
    "Result",
    "__version__",
    "convert",
    "enableDebugLog",
    "getSupportedOperators",
    "supported_operators",
]
