"""Tests of tflite2onnx/op/movement."""
