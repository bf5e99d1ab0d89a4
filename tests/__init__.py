"""The tests, in the shape of the package: tests/op/test_conv.py tests tflite2onnx/op/conv.py."""
