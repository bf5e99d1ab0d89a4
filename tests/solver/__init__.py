"""Tests of tflite2onnx/solver."""
