"""Tests of tflite2onnx/contrib/stablehlo."""
