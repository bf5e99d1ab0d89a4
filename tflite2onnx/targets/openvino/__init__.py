"""OpenVINO."""

from tflite2onnx.targets.presets import PORTABLE

ALIASES = ("ov",)
# OpenVINO refuses Conv of int8 data in bfloat16. Without VNNI its integer products saturate, and
# int8 weights would make it use integer products.
OPTIONS = {**PORTABLE, "activations": "uint8", "weights": "float"}
