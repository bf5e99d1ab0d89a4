"""The version; reading it from the installed package would take 10 ms at each start."""

import sys
from typing import NoReturn

from tflite2onnx.utils.standard_output import discard_stdout

VERSION = "1.0.0"


def print_version() -> NoReturn:
    """Print the version and end the program, before the modules of a conversion are imported."""
    if sys.stdout is None:
        sys.exit("tflite2onnx: --version: cannot print: stdout is closed")
    try:
        sys.stdout.write(f"tflite2onnx {VERSION}\n")
        sys.stdout.flush()
    except OSError as error:
        discard_stdout()
        sys.exit(f"tflite2onnx: --version: cannot print: {error.strerror}")
    sys.exit()
