"""OpenCV 5's dnn module."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    WRONG,
    DequantizedInputs,
    NoDefaultInputs,
    Operators,
)

RULES = (
    NoDefaultInputs(),
    Operators(
        refused=frozenset(("DynamicQuantizeLinear", "MatMulInteger", "Scan")),
        consequence=NOT_LOADED,
        advice="convert with --dynamic-range float, or cut the model before it",
    ),
    DequantizedInputs(
        operators=("Conv",),
        place=1,
        types=("uint8",),
        consequence=f"{WRONG} on processors with AVX-VNNI",
        advice="convert with --weights uint8",
    ),
)
