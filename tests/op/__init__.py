"""Tests of the operators, a module for each of tflite2onnx/op."""
