"""ONNX Runtime's WebGPU provider."""

from tflite2onnx.targets.presets import PORTABLE

# QuantizeLinear has no WebGPU kernel: each one would fetch its data from the GPU. AveragePool of
# opset 19 has none either.
OPTIONS = {**PORTABLE, "opset": 18, "quantization": "rounded"}
