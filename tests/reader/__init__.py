"""Tests of tflite2onnx/reader."""
