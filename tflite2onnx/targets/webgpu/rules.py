"""ONNX Runtime with its WebGPU provider, whose other nodes run on the CPU."""

from tflite2onnx.targets.rules import NoDefaultInputs, OpsetRange

_MEASURED = "docs/runtimes.md"

RULES = (
    OpsetRange(most=26, advice="convert with --opset 26", source=_MEASURED),
    NoDefaultInputs(advice="convert with --states required", source=_MEASURED),
)
