"""ONNX Runtime's WebGPU provider."""

from tflite2onnx.targets.presets import PORTABLE

# QuantizeLinear has no WebGPU kernel: each one would fetch its data from the GPU. AveragePool of
# opset 19 has none either. Inputs and outputs are floats, because QuantizeLinear would make those
# of 8 bits, and browsers load no model with int16.
OPTIONS = {**PORTABLE, "opset": 18, "quantization": "rounded", "io_type": "float"}
