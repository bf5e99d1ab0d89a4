"""Tests of tflite2onnx/builder/rewrites."""
