"""Tests of tflite2onnx/contrib/flex."""
