"""Nodes for an operator that the HTP rounds otherwise."""

from tflite2onnx.targets import averages

PATHS = averages.PATHS
