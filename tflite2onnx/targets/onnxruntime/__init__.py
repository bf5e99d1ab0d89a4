"""ONNX Runtime: its options, its forms of operators, and their costs."""

ALIASES = ("ort", "cpu", "arm64", "cuda", "directml", "gpu", "raspberrypi")
OPTIONS = {"forms": "fastest", "states": "optional", "weights": "adaptive"}
