"""ncnn of 2026-10-20, with pnnx."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    QDQ,
    WRONG,
    NoDilations,
    Operators,
    Ranks,
    RefusedAttributes,
    StaticShapes,
    SymmetricPads,
    TypesOfEndpoints,
    list_names,
)

_CUT = "cut the model before it"

RULES = (
    Operators(
        refused=list_names(
            "And ArgMax ArgMin Cast CumSum Equal GRU GatherElements GatherND Greater GreaterOrEqual"
            " If IsInf IsNaN LSTM Less LessOrEqual Loop LpNormalization Mean NonMaxSuppression"
            " NonZero Not Or RNN Range ReverseSequence Scan ScatterElements ScatterND Shape"
            " Softsign Sum Tile TopK Trilu Where Xor"
        ),
        consequence=NOT_LOADED,
        advice=_CUT,
    ),
    Operators(
        refused=(*QDQ, "DynamicQuantizeLinear"),
        consequence=NOT_LOADED,
        advice="convert with --quantization rounded",
    ),
    Operators(refused=("SpaceToDepth",), consequence=WRONG, advice=_CUT),
    RefusedAttributes(
        operators=("DepthToSpace",),
        values={"mode": ("DCR", None)},
        consequence=NOT_LOADED,
        advice=_CUT,
    ),
    RefusedAttributes(
        operators=("Pad",), values={"mode": ("constant", None)}, consequence=NOT_LOADED, advice=_CUT
    ),
    RefusedAttributes(
        operators=("Resize",),
        values={"coordinate_transformation_mode": ("asymmetric",), "mode": ("linear",)},
        consequence=WRONG,
        advice=_CUT,
    ),
    RefusedAttributes(
        operators=("Resize",),
        values={
            "coordinate_transformation_mode": ("half_pixel", None),
            "mode": ("nearest", None),
        },
        consequence=WRONG,
        advice=_CUT,
    ),
    Ranks(operators=("Transpose",), ranks=range(1, 6), consequence=NOT_LOADED, advice=_CUT),
    SymmetricPads(operators=("AveragePool", "ConvTranspose"), consequence=NOT_LOADED, advice=_CUT),
    NoDilations(operators=("MaxPool",), consequence=NOT_LOADED, advice=_CUT),
    StaticShapes(consequence=NOT_LOADED, advice="convert with --static"),
    TypesOfEndpoints(
        inputs=("float32",), consequence=NOT_LOADED, advice="convert with --io-type float"
    ),
)
