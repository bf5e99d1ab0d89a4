"""Tests of tflite2onnx/targets/genai."""
