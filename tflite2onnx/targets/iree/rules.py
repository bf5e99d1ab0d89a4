"""IREE 3.13."""

from tflite2onnx.targets.rules import NOT_LOADED, NoTypes, Operators, SymmetricPads

_CUT = "cut the model before it"

RULES = (
    Operators(refused=("Softsign",), consequence=NOT_LOADED, advice=_CUT),
    SymmetricPads(operators=("ConvTranspose",), consequence=NOT_LOADED, advice=_CUT),
    NoTypes(
        types=("int16", "uint16"), consequence=NOT_LOADED, advice="convert with --io-type float"
    ),
)
