"""Tests of tflite2onnx/op/random."""
