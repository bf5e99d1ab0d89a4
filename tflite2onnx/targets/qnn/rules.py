"""ONNX Runtime's QNN provider, on the HTP processor of Qualcomm."""

from tflite2onnx.targets.rules import (
    Operators,
    PerChannelWeights,
    QuantizedTypes,
    StaticShapes,
    list_names,
)

_DOCUMENT = "https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html"
_SOURCE = "onnxruntime/core/providers/qnn/builder/op_builder_factory.cc"
_CPU = "ONNX Runtime runs the node on its CPU provider; cut the model to run the rest on QNN"

RULES = (
    Operators(
        known=list_names(
            "Abs Add And ArgMax ArgMin Asin Atan AveragePool BatchNormalization Cast Ceil Clip"
            " Concat Constant Conv ConvTranspose Cos CumSum DepthToSpace DequantizeLinear Div"
            " Einsum Elu Equal Exp Expand Flatten Floor Gather GatherElements GatherND Gelu Gemm"
            " GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HardSigmoid"
            " HardSwish Identity InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less"
            " LessOrEqual Log LogSoftmax LpNormalization MatMul Max MaxPool Mean Min Mod Mul Neg"
            " Not Or PRelu Pad Pow QuantizeLinear RMSNormalization Reciprocal ReduceL2 ReduceMax"
            " ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize Round STFT"
            " ScatterElements ScatterND Sigmoid Sign Sin Slice Softmax SpaceToDepth Split Sqrt"
            " Squeeze Sub Sum Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Where"
        ),
        advice=_CPU,
        source=_SOURCE,
    ),
    StaticShapes(advice="convert with --static, or fix sizes by --shape", source=_DOCUMENT),
    QuantizedTypes(
        data=("uint8", "uint16"),
        weights=("uint8", "int8", "uint16", "int16"),
        advice="convert with --activations uint8 --io-type uint8",
        source=_DOCUMENT,
    ),
    PerChannelWeights(advice=_CPU, source=_DOCUMENT),
)
