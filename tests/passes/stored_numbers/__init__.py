"""The tests of `tflite2onnx/passes/stored_numbers`."""
