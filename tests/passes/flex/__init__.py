"""Tests of tflite2onnx/passes/flex."""
