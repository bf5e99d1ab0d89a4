"""Tests of tflite2onnx/op/vision."""
