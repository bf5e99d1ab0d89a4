"""Tests of tflite2onnx/passes/tensor_lists."""
