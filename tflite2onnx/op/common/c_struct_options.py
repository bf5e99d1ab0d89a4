"""Options of MediaPipe's custom operators, which are a C struct and no flexbuffer."""

from __future__ import annotations

import struct

from tflite2onnx.op.base import Operator, OperatorError

_PADDINGS = ("UNKNOWN", "SAME", "VALID")  # TfLitePadding
_ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH")  # TfLiteFusedActivation


def read_int32_fields(operator: Operator, count: int) -> tuple[int, ...]:
    """Return the first `count` fields of the struct, which are int32.

    Raises:
        OperatorError: the options are too short.
    """
    raw = operator.op.custom_options
    if len(raw) < 4 * count:
        raise OperatorError(f"its options must have {4 * count} bytes or more, got {len(raw)}")
    return struct.unpack(f"<{count}i", raw[: 4 * count])


def padding_of(number: int) -> str:
    """Return the name of a TfLitePadding."""
    return _find_name(number, _PADDINGS, "padding")


def activation_of(number: int) -> str:
    """Return the name of a TfLiteFusedActivation."""
    return _find_name(number, _ACTIVATIONS, "activation function")


def _find_name(number: int, names: tuple[str, ...], what: str) -> str:
    if not 0 <= number < len(names):
        raise OperatorError(f"the {what} must be below {len(names)}, got {number}")
    return names[number]
