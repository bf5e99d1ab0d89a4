"""ONNX Runtime: its options, its forms of operators, and their costs."""

OPTIONS = {"forms": "fastest", "states": "optional", "weights": "adaptive"}
