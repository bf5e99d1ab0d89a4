"""ONNX Runtime with its WebGPU provider, whose other nodes run on the CPU."""

from tflite2onnx.targets.rules import NOT_LOADED, NoDefaultInputs, NoTypes, OpsetRange

RULES = (
    OpsetRange(most=26, consequence=NOT_LOADED, advice="convert with --opset 26"),
    NoDefaultInputs(),
    NoTypes(
        types=("int16", "uint16"),
        consequence="browsers do not load the model",
        advice="convert with --io-type float",
    ),
    NoTypes(types=("float64",), consequence="browsers do not load the model"),
)
