"""Tests of tflite2onnx/report."""
