"""The tests of `tflite2onnx/passes/quantization`."""
