"""Tests of tflite2onnx/op/recurrent."""
