"""ONNX Runtime Web."""

OPTIONS = {"forms": "fastest", "states": "required", "weights": "adaptive"}
