"""Tests of tflite2onnx/op/indexing."""
