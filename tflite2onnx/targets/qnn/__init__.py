"""QNN."""

from tflite2onnx.targets.presets import NPU

ALIASES = ("snpe", "htp", "hexagon", "snapdragon", "qualcomm", "npu")
# The HTP has more operators for uint8 than for int8, and one quantization for each tensor. Before
# opset 21 there is no DequantizeLinear of int16.
OPTIONS = {**NPU, "opset": 21, "quantization": "qdq-uniform", "activations": "uint16"}
