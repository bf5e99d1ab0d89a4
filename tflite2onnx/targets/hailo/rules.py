"""Hailo's Dataflow Compiler, which quantizes float models itself."""

from tflite2onnx.targets.rules import NoTypes, Operators, list_names

# The compiler reads a model of float32 parameters, and quantizes the parameters.
_STEPS = (
    "https://developer.ridgerun.com/wiki/index.php?title="
    "Hailo/Hailo-8/AI_Software_and_Tools/Hailo_Dataflow_Compiler"
)
_QUANTIZES = "the compiler, which quantizes floats itself, does not load the model"

RULES = (
    Operators(
        refused=list_names(
            "QuantizeLinear DequantizeLinear DynamicQuantizeLinear ConvInteger MatMulInteger"
            " QLinearConv QLinearMatMul"
        ),
        consequence=_QUANTIZES,
        advice="convert with --quantization float",
        source=_STEPS,
    ),
    Operators(
        refused=("BitCast",),
        consequence="the compiler, which reads floats, does not load the model",
        advice="cut the model before it",
        source=_STEPS,
    ),
    NoTypes(
        types=("int8", "uint8", "int16", "uint16"),
        consequence=_QUANTIZES,
        advice="convert with --quantization float",
        source=_STEPS,
    ),
)
