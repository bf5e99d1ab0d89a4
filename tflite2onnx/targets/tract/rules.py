"""tract 0.23."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    QDQ,
    WRONG,
    ConstantInputs,
    NoChain,
    NoNegativePads,
    OneTypeAround,
    Operators,
    list_names,
)

_ROUNDED = "convert with --quantization rounded"

RULES = (
    Operators(
        refused=("DynamicQuantizeLinear",),
        consequence=NOT_LOADED,
        advice="convert with --dynamic-range float",
    ),
    Operators(
        refused=("Loop", "ReverseSequence"),
        consequence=NOT_LOADED,
        advice="cut the model before it",
    ),
    ConstantInputs(
        inputs=dict.fromkeys(QDQ, (1,)),
        consequence=NOT_LOADED,
        advice="convert with --dynamic-range float",
    ),
    # tract computes these functions on the integers.
    OneTypeAround(
        around=list_names(
            "Abs Erf Exp Floor HardSwish Identity LeakyRelu Log Neg Reshape Round Sigmoid Sin Slice"
            " Softmax Sqrt Tanh Transpose"
        ),
        consequence=NOT_LOADED,
        advice=_ROUNDED,
    ),
    NoChain(
        chain=[("DequantizeLinear",), ("Softmax",), ("QuantizeLinear",)],
        consequence=WRONG,
        advice=_ROUNDED,
    ),
    NoNegativePads(consequence="the process ends", advice="cut the model before it"),
)
