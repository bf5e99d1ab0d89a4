"""NNAPI."""

from tflite2onnx.targets.presets import NPU

ALIASES = ("android", "npu")
# Activations must be uint8. Weights with a scale for each channel need zero points of 0.
OPTIONS = {**NPU, "activations": "uint8", "weights": "int8"}
