"""RKNN."""

from tflite2onnx.targets.presets import NPU

OPTIONS = {**NPU, "activations": "int8"}
