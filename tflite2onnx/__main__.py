"""`python -m tflite2onnx`."""

import sys

from tflite2onnx.cli import entry

sys.exit(entry())
