"""Tests of tflite2onnx/targets/onnxruntime."""
