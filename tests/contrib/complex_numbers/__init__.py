"""Tests of tflite2onnx/contrib/complex_numbers."""
