"""OpenCV."""

from tflite2onnx.targets.presets import PORTABLE

# OpenCV 5 computes Conv wrongly if data, weights and outputs are int8, and it has no
# DynamicQuantizeLinear.
OPTIONS = {**PORTABLE, "activations": "int8", "weights": "uint8", "dynamic_range": "float"}
