"""Tests of tflite2onnx/targets/qnn."""
