"""TensorRT 10 and 11.

TensorRT clips INT8 to -128 and 127, as `move_zero_points` expects: a range that begins at 0 in the
file begins at -128 steps after this pass.
"""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    NoTypes,
    Operators,
    OpsetRange,
    PerChannelWeights,
    QuantizedTypes,
    ZeroPointsOfZero,
    list_names,
)

_OPERATORS = "https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md"
_GUIDE = (
    "https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/"
    "quantized-types-explicit-quantization.html"
)
_SCHEMES = (
    "https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/"
    "quantized-types-schemes.html"
)
_OPSETS = "https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/onnx-opset-guide.html"
_FLOAT = "convert with --quantization float"
_SYMMETRIC = "convert with --quantization symmetric --io-type float, or --quantization float"

RULES = (
    # TensorRT 10.0 reads opsets up to 20, and version 11 opsets up to 25.
    OpsetRange(
        least=9, most=25, consequence=NOT_LOADED, advice="convert with --opset 19", source=_OPSETS
    ),
    Operators(
        refused=list_names(
            "Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im"
            " Compress ConcatFromSequence ConvInteger DFT Det DynamicQuantizeLinear ImageDecoder"
            " MatMulInteger MaxRoiPool MaxUnpool MelWeightMatrix Multinomial Optional"
            " OptionalGetElement OptionalHasElement QLinearConv QLinearMatMul RegexFullMatch"
            " SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert"
            " SequenceLength SequenceMap SplitToSequence StringConcat StringNormalizer StringSplit"
            " TfIdfVectorizer"
        ),
        consequence=NOT_LOADED,
        advice="convert with --forms canonical --quantization float, or cut the model before it",
        source=_OPERATORS,
    ),
    ZeroPointsOfZero(consequence=NOT_LOADED, advice=_SYMMETRIC, source=_OPERATORS),
    QuantizedTypes(
        data=("int8",),
        weights=("int8", "int4"),
        consequence=NOT_LOADED,
        advice=_SYMMETRIC,
        source=_SCHEMES,
    ),
    PerChannelWeights(consequence=NOT_LOADED, advice=_FLOAT, source=_GUIDE),
    NoTypes(
        types=("int16", "uint16", "uint32", "uint64"),
        consequence=NOT_LOADED,
        advice=_FLOAT,
        source=_OPERATORS,
    ),
    NoTypes(
        types=("int8",),
        unless=list_names(
            "AveragePool Cast Clip Concat Constant Conv ConvTranspose DequantizeLinear Gather"
            " GatherElements GatherND Gemm GlobalAveragePool GlobalMaxPool Identity If MaxPool Pad"
            " QuantizeLinear Relu Reshape Scatter ScatterElements ScatterND Shape Sign Size Slice"
            " Squeeze Transpose Unsqueeze"
        ),
        consequence=NOT_LOADED,
        advice=_FLOAT,
        source=_OPERATORS,
    ),
    NoTypes(
        types=("uint8",),
        unless=("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"),
        consequence=NOT_LOADED,
        advice=_FLOAT,
        source=_OPERATORS,
    ),
)
