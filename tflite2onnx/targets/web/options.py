"""The options for ONNX Runtime Web."""

from __future__ import annotations

OPTIONS = {"forms": "fastest", "states": "required", "weights": "adaptive"}
