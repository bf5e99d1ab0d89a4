"""ONNX Runtime with its WebGPU provider, whose other nodes run on the CPU."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    ModelView,
    NoDefaultInputs,
    NodeRule,
    NodeView,
    NoTypes,
    OpsetRange,
)


class NoSines(NodeRule):
    """No node may be a function of angles."""

    def find_fault(self, model: ModelView, node: NodeView) -> str:
        is_sine = node.operator in ("Cos", "Sin", "Tan")
        return f"operator must not be Cos, Sin or Tan, got {node.operator}" if is_sine else ""


RULES = (
    OpsetRange(most=26, consequence=NOT_LOADED, advice="convert with --opset 26"),
    NoDefaultInputs(),
    NoTypes(
        types=("int16", "uint16"),
        consequence="browsers do not load the model",
        advice="convert with --io-type float",
    ),
    NoTypes(types=("float64",), consequence="browsers do not load the model"),
    NoSines(
        consequence="GPUs may be off by 5e-4, and by more for larger angles than pi",
        advice="convert with --target webgpu, which writes sums and products outside of loops",
        source="WebGPU Shading Language, Floating Point Accuracy",
    ),
)
