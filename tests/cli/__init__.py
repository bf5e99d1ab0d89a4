"""Tests of tflite2onnx/cli."""
