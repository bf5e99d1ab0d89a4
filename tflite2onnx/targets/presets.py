"""Options that several targets have in common."""

# onnx.reference supports DequantizeLinear from opset 19 on. ONNX Runtime 1.17 supports opsets up to
# 20.
PORTABLE = {"forms": "canonical", "states": "required", "opset": 19}
# For compilers that read floats only, and for compilers that quantize a model of floats.
FLOAT = {"forms": "canonical", "states": "required", "quantization": "float", "static": True}
# For drivers of NPUs without DynamicQuantizeLinear.
NPU = {**PORTABLE, "dynamic_range": "float", "static": True}
# For runtimes of floats: the numbers of a quantized network, without integers.
ROUNDED = {**PORTABLE, "quantization": "rounded", "static": True, "io_type": "float"}
