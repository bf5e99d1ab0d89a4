"""IREE 3.13."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    WRONG,
    NoNegativePads,
    NoTypes,
    Operators,
    RefusedAttributes,
    SymmetricPads,
)

_CUT = "cut the model before it"

RULES = (
    Operators(refused=("Loop", "Softsign"), consequence=NOT_LOADED, advice=_CUT),
    Operators(refused=("ReverseSequence",), consequence=WRONG, advice=_CUT),
    RefusedAttributes(
        operators=("DepthToSpace",), values={"mode": ("CRD",)}, consequence=WRONG, advice=_CUT
    ),
    SymmetricPads(operators=("ConvTranspose",), consequence=NOT_LOADED, advice=_CUT),
    NoNegativePads(consequence=NOT_LOADED, advice=_CUT),
    NoTypes(
        types=("int16", "uint16"), consequence=NOT_LOADED, advice="convert with --io-type float"
    ),
)
