"""The tests, in the folders of the package: op/vision/test_conv.py tests op/vision/conv.py."""
