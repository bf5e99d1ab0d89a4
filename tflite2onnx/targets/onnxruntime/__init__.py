"""ONNX Runtime: its options, its forms of operators, and their costs."""

ALIASES = ("ort", "cpu", "cuda", "gpu", "raspberrypi")
OPTIONS = {"forms": "fastest", "states": "optional", "weights": "adaptive"}
