"""Tests of tflite2onnx/utils."""
