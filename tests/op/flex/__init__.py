"""Tests of tflite2onnx/op/flex."""
