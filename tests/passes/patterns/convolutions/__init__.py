"""Tests of tflite2onnx/passes/patterns/convolutions."""
