"""ONNX Runtime: its options, its forms of operators, and their costs."""

ALIASES = ("ort", "cpu")
OPTIONS = {"forms": "fastest", "states": "optional", "weights": "adaptive"}
