"""ONNX Runtime Web."""

ALIASES = ("wasm", "browser", "onnxruntime-web", "ort-web")
OPTIONS = {"forms": "fastest", "states": "required", "weights": "adaptive"}
