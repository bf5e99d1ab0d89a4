"""Convert TensorFlow Lite (LiteRT) models to ONNX."""

import gc
import logging
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflite2onnx.utils.interrupts import end_on_interrupt, is_program
from tflite2onnx.version import VERSION, print_version

if is_program():
    if sys.argv[1:] == ["--version"]:
        print_version()
    end_on_interrupt()  # An interrupt during the imports below ends the process, too.
    # Garbage collection takes longer than a small conversion, and frees no imported modules.
    gc.disable()

from tflite2onnx import contrib
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError
from tflite2onnx.interface import Endpoint, State
from tflite2onnx.op import supported_operators
from tflite2onnx.op.registry import register, unregister
from tflite2onnx.result import Result
from tflite2onnx.stateful import Stateful

contrib.offer()

if TYPE_CHECKING:
    from tflite2onnx.bundle import convert_bundle
    from tflite2onnx.verification import Report, verify

__version__ = VERSION
DESCRIPTION = "Convert TensorFlow Lite models to ONNX"  # the same text as in tflite2onnx 0.x

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


def getSupportedOperators() -> list[str]:  # noqa: N802 - its name since 0.x
    """Return the names of all supported operators; the old name of `supported_operators`."""
    return supported_operators()


def enableDebugLog() -> None:  # noqa: N802 - its name since 0.x
    """Log the stages of each conversion, to stderr unless the program configures logging."""
    logging.basicConfig(format="%(asctime)s %(levelname).1s [%(name)s] %(message)s")
    logging.getLogger("tflite2onnx").setLevel(logging.DEBUG)


# Modules that are imported at the first access: a conversion of one model starts faster without
# them.
_IMPORTED_LATER = {"Report": "verification", "convert_bundle": "bundle", "verify": "verification"}


def __dir__() -> list[str]:
    """Return the public names, those of modules that are imported later too."""
    return sorted([*__all__, "DESCRIPTION", "__doc__"])


def __getattr__(name: str) -> Any:  # noqa: ANN401 - attributes of the module have any type
    """Import a module at the first access of its name; few programs need these names."""
    if name in _IMPORTED_LATER:
        return getattr(import_module(f"{__name__}.{_IMPORTED_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
