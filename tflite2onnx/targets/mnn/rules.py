"""MNN 3.6."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    QDQ,
    WRONG,
    NoDilations,
    NoNegativePads,
    Operators,
    Ranks,
    TypesOfEndpoints,
)

_CUT = "cut the model before it"

RULES = (
    Operators(
        refused=("BitwiseAnd", "DFT", "IsInf", "IsNaN", "Mean", "Mish", "Scan"),
        consequence=NOT_LOADED,
        advice=_CUT,
    ),
    Operators(
        refused=(*QDQ, "DynamicQuantizeLinear"),
        consequence="the results have other shapes",
        advice="convert with --quantization rounded",
    ),
    Operators(refused=("ReduceL2",), consequence="the results have other shapes", advice=_CUT),
    Operators(
        refused=("ScatterND",),
        consequence=f"{WRONG} if an index has several numbers",
        advice=_CUT,
    ),
    Ranks(operators=("Conv",), ranks=(3, 4), consequence=NOT_LOADED, advice=_CUT),
    TypesOfEndpoints(
        inputs=("float32", "int32", "uint8"),
        outputs=("float32", "int32", "int8", "uint8"),
        consequence="MNN refuses such inputs, or reads and writes int32",
        advice="convert with --io-type float",
    ),
    NoDilations(operators=("MaxPool",), consequence=WRONG, advice=_CUT),
    NoNegativePads(consequence=WRONG, advice=_CUT),
)
