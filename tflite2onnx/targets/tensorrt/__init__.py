"""TensorRT."""

from tflite2onnx.targets.presets import PORTABLE

ALIASES = ("trt", "jetson", "nvidia")
# TensorRT supports int8 only with zero points of 0, and between QuantizeLinear and
# DequantizeLinear.
OPTIONS = {
    **PORTABLE,
    "quantization": "symmetric",
    "activations": "int8",
    "weights": "int8",
    "io_type": "float",
}
