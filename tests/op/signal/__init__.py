"""Tests of tflite2onnx/op/signal."""
