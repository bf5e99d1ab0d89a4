"""Tests of tflite2onnx/contrib/hash_tables."""
