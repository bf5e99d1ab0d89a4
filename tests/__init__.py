"""The tests, in the shape of the package: op/vision/test_conv.py tests op/vision/conv.py."""
