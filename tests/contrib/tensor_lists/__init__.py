"""Tests of tflite2onnx/contrib/tensor_lists."""
