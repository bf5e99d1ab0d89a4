"""The options for ONNX Runtime's CPU provider."""

from __future__ import annotations

OPTIONS = {"forms": "fastest", "states": "optional", "weights": "adaptive"}
