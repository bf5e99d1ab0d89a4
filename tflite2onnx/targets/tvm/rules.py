"""TVM 0.27's importer of ONNX models."""

from tflite2onnx.targets.rules import NoDefaultInputs, Operators

_MEASURED = "docs/runtimes.md"

RULES = (
    NoDefaultInputs(advice="convert with --states required", source=_MEASURED),
    Operators(
        refused=frozenset(("LSTM", "Scan")),
        advice="cut the model before it",
        source=_MEASURED,
    ),
)
