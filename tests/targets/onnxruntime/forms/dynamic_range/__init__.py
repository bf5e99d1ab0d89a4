"""Tests of tflite2onnx/targets/onnxruntime/forms/dynamic_range."""
