"""Tests of tflite2onnx/verification."""
