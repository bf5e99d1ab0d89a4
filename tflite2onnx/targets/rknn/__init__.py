"""RKNN."""

from tflite2onnx.targets.presets import NPU

ALIASES = ("rockchip", "rk3588", "rk3576", "rk3568", "rk3566", "npu")
# RKNN reads one quantization for each tensor, and quantizes the values between that have none.
OPTIONS = {**NPU, "quantization": "qdq-uniform", "activations": "int8"}
