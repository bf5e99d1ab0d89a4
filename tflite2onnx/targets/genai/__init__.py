"""onnxruntime-genai, which runs language models."""

from tflite2onnx.utils.contradictions import ABSENT, Contradiction

OPTIONS = {"forms": "fastest", "states": "required", "weights": "adaptive", "caches": "shared"}

_REASON = "the decoder has other inputs than the file"
CONTRADICTIONS = (Contradiction("target", ("genai",), ("report",), ABSENT, _REASON),)
