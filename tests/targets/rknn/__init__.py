"""Tests of tflite2onnx/targets/rknn."""
