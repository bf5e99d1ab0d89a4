"""Hailo's Dataflow Compiler, which quantizes float models itself."""

from tflite2onnx.targets.rules import (
    NoTypes,
    Operators,
    list_names,
)

_GUIDE = "Hailo Dataflow Compiler User Guide 3.30, chapters 5.1, 5.3 and 5.5"
_CUT = "cut the model with --outputs before it, and run the rest elsewhere"

RULES = (
    Operators(
        refused=list_names(
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear ConvInteger MatMulInteger"
            " QLinearConv QLinearMatMul"
        ),
        advice="convert with --quantization float: the compiler quantizes the model itself",
        source=_GUIDE,
    ),
    Operators(
        refused=list_names("If Loop NonMaxSuppression NonZero Scan Unique"),
        advice=_CUT,
        source=_GUIDE,
    ),
    NoTypes(
        types=("int8", "uint8", "int16", "uint16"),
        advice="convert with --quantization float: the compiler quantizes the model itself",
        source=_GUIDE,
    ),
)
