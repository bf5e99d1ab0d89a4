"""OpenCV 5's dnn module."""

from tflite2onnx.targets.rules import DequantizedInputs, NoDefaultInputs, Operators

_MEASURED = "docs/runtimes.md"

RULES = (
    NoDefaultInputs(advice="convert with --states required", source=_MEASURED),
    Operators(
        refused=frozenset(("DynamicQuantizeLinear", "MatMulInteger", "Scan")),
        advice="convert with --dynamic-range float, or cut the model before it",
        source=_MEASURED,
    ),
    DequantizedInputs(
        inputs={"Conv": (1,)},
        types=("uint8",),
        advice="convert with --weights uint8",
        source=_MEASURED,
    ),
)
