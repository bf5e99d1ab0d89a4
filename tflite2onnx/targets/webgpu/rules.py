"""ONNX Runtime with its WebGPU provider, whose other nodes run on the CPU."""

from collections.abc import Iterator
from dataclasses import dataclass

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    Breach,
    ModelView,
    NoDefaultInputs,
    NoTypes,
    OpsetRange,
    RuntimeRule,
)


@dataclass(frozen=True, kw_only=True)
class NoSines(RuntimeRule):
    """No node may be a function of angles."""

    def find_breaches(self, model: ModelView) -> Iterator[Breach]:
        """Yield every such node."""
        for node in model.nodes:
            if node.operator in ("Cos", "Sin", "Tan"):
                message = f"operator must not be Cos, Sin or Tan, got {node.operator}"
                yield Breach(node.name, node.operator, message)


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
