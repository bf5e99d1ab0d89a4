"""Tests of tflite2onnx/passes/recurrent."""
