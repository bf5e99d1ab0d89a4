"""Tests of tflite2onnx/passes/batch."""
