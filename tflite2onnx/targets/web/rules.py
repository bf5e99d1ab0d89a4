"""ONNX Runtime Web in WebAssembly, which has the operators of ONNX Runtime's CPU provider."""

from tflite2onnx.targets.rules import NOT_LOADED, NoDefaultInputs, OpsetRange

RULES = (
    OpsetRange(most=26, consequence=NOT_LOADED, advice="convert with --opset 26"),
    NoDefaultInputs(),
)
