"""Tests of tflite2onnx/op/linear."""
