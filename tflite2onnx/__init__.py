"""Convert TensorFlow Lite (LiteRT) models to ONNX."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflite2onnx.utils.interrupts import end_on_interrupt, is_program

if is_program():  # whose modules take a while to load
    end_on_interrupt()

from tflite2onnx.bundle import convert_bundle
from tflite2onnx.compat import enableDebugLog, getSupportedOperators
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.interface import Endpoint, State
from tflite2onnx.op import supported_operators
from tflite2onnx.op.registry import register, unregister
from tflite2onnx.result import Result
from tflite2onnx.stateful import Stateful
from tflite2onnx.version import VERSION

if TYPE_CHECKING:
    from tflite2onnx.verification import Report, verify

__version__ = VERSION

__all__ = [
    "ConversionError",
    "Endpoint",
    "Report",
    "Result",
    "State",
    "Stateful",
    "__version__",
    "convert",
    "convert_bundle",
    "enableDebugLog",
    "getSupportedOperators",
    "register",
    "supported_operators",
    "unregister",
    "verify",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module has
    """Import what verifies when it is asked for: converting goes without, in less time."""
    if name in ("Report", "verify"):
        return getattr(import_module("tflite2onnx.verification"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
