"""Tests of tflite2onnx/op/control_flow."""
