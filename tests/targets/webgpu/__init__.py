"""Tests of tflite2onnx/targets/webgpu."""
