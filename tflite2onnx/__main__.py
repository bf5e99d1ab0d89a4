"""`python -m tflite2onnx`."""

import sys

from tflite2onnx.cli import main

sys.exit(main())
