"""Tests of tflite2onnx/op/reduction."""
