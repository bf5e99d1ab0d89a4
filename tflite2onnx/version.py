"""The version; reading it from the installed package would take 10 ms at each start."""

import sys
from typing import NoReturn

from tflite2onnx.utils.standard_output import print_or_exit

VERSION = "1.0.0"


def print_version() -> NoReturn:
    """Print the version and end the program, before the modules of a conversion are imported."""
    print_or_exit(f"tflite2onnx {VERSION}\n")
    sys.exit()
