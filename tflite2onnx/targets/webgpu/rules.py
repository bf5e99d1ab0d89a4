"""ONNX Runtime with its WebGPU provider, whose other nodes run on the CPU."""

from tflite2onnx.targets.rules import NoDefaultInputs, NoTypes, OpsetRange

_MEASURED = "docs/runtimes.md"

RULES = (
    OpsetRange(most=26, advice="convert with --opset 26", source=_MEASURED),
    NoDefaultInputs(advice="convert with --states required", source=_MEASURED),
    NoTypes(
        types=("int16", "uint16"),
        advice="browsers refuse the model: convert with --io-type float",
        source=_MEASURED,
    ),
)
