"""Tests of tflite2onnx/passes/state."""
