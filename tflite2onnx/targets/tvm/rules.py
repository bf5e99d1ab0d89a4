"""TVM 0.27's importer of ONNX models."""

from tflite2onnx.targets.rules import NOT_LOADED, NoDefaultInputs, Operators

RULES = (
    NoDefaultInputs(),
    Operators(
        refused=frozenset(("LSTM", "Scan")),
        consequence=NOT_LOADED,
        advice="cut the model before it",
    ),
)
