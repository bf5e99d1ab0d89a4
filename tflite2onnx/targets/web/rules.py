"""ONNX Runtime Web in WebAssembly, which has the operators of ONNX Runtime's CPU provider."""

from tflite2onnx.targets.rules import NoDefaultInputs

RULES = (NoDefaultInputs(advice="convert with --states required", source="docs/runtimes.md"),)
