"""Tests of tflite2onnx/contrib/linear_algebra."""
