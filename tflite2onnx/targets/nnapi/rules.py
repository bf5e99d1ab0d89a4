"""ONNX Runtime's NNAPI provider, on Android."""

from tflite2onnx.targets.rules import (
    ON_THE_CPU,
    ConstantInputs,
    Operators,
    PerChannelWeights,
    QuantizedTypes,
    list_names,
)

_OPERATORS = (
    "https://github.com/microsoft/onnxruntime/blob/main/tools/ci_build/github/android/"
    "nnapi_supported_ops.md"
)
_NEURAL_NETWORKS = "https://developer.android.com/ndk/reference/group/neural-networks"

RULES = (
    Operators(
        known=list_names(
            "Abs Add AveragePool Cast Clip Concat Constant Conv DepthToSpace DequantizeLinear Div"
            " Elu Exp Flatten Floor Gather Gemm GlobalAveragePool GlobalMaxPool Identity Log MatMul"
            " Max MaxPool Min Mul Neg PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear Relu"
            " Reshape Resize Sigmoid Sin Slice Softmax Sqrt Squeeze Sub Tanh Transpose"
            " Unsqueeze"
        ),
        consequence=ON_THE_CPU,
        source=_OPERATORS,
    ),
    ConstantInputs(
        inputs={
            "Conv": (1, 2),
            "DequantizeLinear": (1, 2),
            "QuantizeLinear": (1, 2),
            "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
            "QLinearMatMul": (1, 2, 4, 5, 6, 7),
        },
        consequence=ON_THE_CPU,
        source=_OPERATORS,
    ),
    QuantizedTypes(
        data=("uint8", "int8"),
        consequence=ON_THE_CPU,
        source=_NEURAL_NETWORKS,
    ),
    PerChannelWeights(axes=(0,), consequence=ON_THE_CPU, source=_NEURAL_NETWORKS),
)
