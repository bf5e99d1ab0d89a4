"""ONNX Runtime Web."""

ALIASES = ("wasm", "browser")
OPTIONS = {"forms": "fastest", "states": "required", "weights": "adaptive"}
