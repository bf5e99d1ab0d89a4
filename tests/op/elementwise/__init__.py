"""Tests of tflite2onnx/op/elementwise."""
