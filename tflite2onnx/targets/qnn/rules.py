"""ONNX Runtime's QNN provider, on the HTP processor of Qualcomm."""

from tflite2onnx.targets.rules import (
    DequantizedInputs,
    LowestZeroPoints,
    NoChain,
    NoTypes,
    OneQuantization,
    Operators,
    PerChannelWeights,
    QuantizedTypes,
    StaticShapes,
    WholeBlocks,
    list_names,
)

_DOCUMENT = "https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html"
_SOURCE = "onnxruntime/core/providers/qnn/builder/op_builder_factory.cc"
_MEASURED = "docs/runtimes.md"
_UNIFORM = "convert with --quantization qdq-uniform"
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
        data=("uint8", "int8", "uint16", "int16"),
        weights=("uint8", "int8", "uint16", "int16"),
        advice="convert with --quantization float",
        source=_MEASURED,
    ),
    PerChannelWeights(advice=_CPU, source=_DOCUMENT),
    # The validator refuses most of these nodes. Then a MaxPool or a Conv ends the session.
    NoTypes(
        types=("uint8", "int8", "uint16", "int16"),
        unless=("QuantizeLinear", "DequantizeLinear", "Cast", "Constant"),
        advice=_UNIFORM,
        source=_MEASURED,
    ),
    DequantizedInputs(
        inputs={"HardSigmoid": (0,), "LeakyRelu": (0,), "Neg": (0,)},
        types=("uint8", "uint16"),
        advice="convert with --activations uint8",
        source=_MEASURED,
    ),
    DequantizedInputs(
        inputs={"AveragePool": (0,)},
        types=("uint8", "int8", "uint16"),
        advice=_CPU,
        source=_MEASURED,
    ),
    # The provider adds a tensor once: "Tensor already added, skip it".
    OneQuantization(
        advice=f"{_UNIFORM}; the runtime uses one of the scales",
        source="onnxruntime/core/providers/qnn/builder/opbuilder/base_op_builder.cc",
    ),
    LowestZeroPoints(
        operators=("Softmax",),
        advice="the results are wrong by the zero point: quantize them with another one",
        source=_MEASURED,
    ),
    NoChain(
        operators=("Conv", "QuantizeLinear", "DequantizeLinear", "Clip"),
        advice=f"{_UNIFORM}: the runtime may lose the Clip",
        source=_MEASURED,
    ),
    # The results are wrong, or the process ends.
    WholeBlocks(
        size=8,
        operators=("Conv", "MaxPool"),
        advice="the runtime reads outside of a block of pixels: gather these rows",
        source=_MEASURED,
    ),
)
