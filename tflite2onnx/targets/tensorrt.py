"""TensorRT 10."""

from tflite2onnx.targets.rules import (
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
_FLOAT = "convert with --quantization float"

RULES = (
    # 10.0 reads opsets up to 20, 10.15 up to 24.
    OpsetRange(least=9, most=24, advice="convert with --opset 19", source=_OPERATORS),
    Operators(
        refused=list_names(
            "Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im"
            " Compress ConvInteger DFT Det DynamicQuantizeLinear MatMulInteger MaxRoiPool MaxUnpool"
            " MelWeightMatrix Multinomial QLinearConv QLinearMatMul"
        ),
        advice="convert with --forms canonical --quantization float, or cut the model before it",
        source=_OPERATORS,
    ),
    ZeroPointsOfZero(advice=_FLOAT, source=_OPERATORS),
    QuantizedTypes(
        data=("int8", "int4"), weights=("int8", "int4"), advice=_FLOAT, source=_OPERATORS
    ),
    PerChannelWeights(advice=_FLOAT, source=_GUIDE),
    NoTypes(
        types=("int16", "uint16", "uint32", "uint64"),
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
        advice=_FLOAT,
        source=_OPERATORS,
    ),
    NoTypes(
        types=("uint8",),
        unless=("Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"),
        advice=_FLOAT,
        source=_OPERATORS,
    ),
)
