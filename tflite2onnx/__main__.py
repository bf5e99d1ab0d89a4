"""`python -m tflite2onnx`."""

from tflite2onnx.cli import run_program

run_program()
