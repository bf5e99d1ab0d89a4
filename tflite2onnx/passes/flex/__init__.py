"""TensorFlow operators that TFLite has under another name."""

from __future__ import annotations

from tflite2onnx.graph import Op
from tflite2onnx.passes.flex.names import PREFIX


def explain_untranslated(op: Op) -> str:
    """Return why a Flex operator was not replaced, "" for other operators."""
    if not (op.custom and op.code.startswith(PREFIX)):
        return ""
    from tflite2onnx.passes.flex.translate import explain_unmatched  # noqa: PLC0415 - few models have Flex operators

    return explain_unmatched(op)
