"""ONNX Runtime's QNN provider, on the HTP processor of Qualcomm."""

from tflite2onnx.targets.rules import (
    ON_THE_CPU,
    WRONG,
    DequantizedInputs,
    LowestZeroPoints,
    NoChain,
    NoDilations,
    NoOutputPadding,
    NoQuantizedFloats,
    NoTypes,
    OneQuantization,
    Operators,
    PerChannelWeights,
    PlainIndices,
    QuantizedTypes,
    Ranks,
    RefusedAttributes,
    StaticShapes,
    WeightsOfInt8,
    WholeBlocks,
    list_names,
)

_DOCUMENT = "https://onnxruntime.ai/docs/execution-providers/QNN-ExecutionProvider.html"
_SOURCE = "onnxruntime/core/providers/qnn/builder/op_builder_factory.cc"
_UNIFORM = "convert with --quantization qdq-uniform"
_ROUNDED = "convert with --target qnn, or quantize the product, too"
_CUT = "cut the model with --inputs or --outputs, and run this part on the CPU"
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
# What reads borders that a Pad made.
BORDERS = ("AveragePool", "GlobalAveragePool", "Pad", "ReduceMean")

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
            " ReduceMean ReduceMin ReduceSum Relu Reshape Resize Round STFT"
            " ScatterElements ScatterND Sigmoid Sign Sin Slice Softmax SpaceToDepth Split Sqrt"
            " Squeeze Sub Sum Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Where"
        ),
        consequence=ON_THE_CPU,
        source=_SOURCE,
    ),
    StaticShapes(
        consequence=ON_THE_CPU,
        advice="convert with --static, or fix sizes by --shape",
        source=_DOCUMENT,
    ),
    QuantizedTypes(
        data=("uint8", "int8", "uint16", "int16"),
        consequence=ON_THE_CPU,
        advice="convert with --quantization float",
    ),
    PerChannelWeights(consequence=ON_THE_CPU, source=_DOCUMENT),
    NoTypes(
        types=("uint8", "int8", "uint16", "int16"),
        unless=("QuantizeLinear", "DequantizeLinear", "Cast", "Constant"),
        consequence=f"{ON_THE_CPU}, and a MaxPool or a Conv after it ends the session",
        advice=_UNIFORM,
    ),
    NoTypes(
        operators=("Clip",),
        types=("float64",),
        consequence=f"{ON_THE_CPU}, and the session ends if another float64 is beside it",
        advice=_CUT,
    ),
    DequantizedInputs(
        operators=("HardSigmoid", "LeakyRelu", "Neg"),
        types=("uint8", "uint16"),
        consequence=ON_THE_CPU,
        advice="convert with --activations uint8",
    ),
    DequantizedInputs(
        operators=("AveragePool",),
        types=("uint8", "int8", "uint16"),
        consequence=ON_THE_CPU,
    ),
    # The provider adds a tensor once: "Tensor already added, skip it".
    OneQuantization(
        consequence=WRONG,
        advice=_UNIFORM,
        source="onnxruntime/core/providers/qnn/builder/opbuilder/base_op_builder.cc",
    ),
    LowestZeroPoints(
        chain=[("Softmax",)],
        types=("int8", "uint8"),
        consequence=f"{WRONG} by the zero point",
    ),
    LowestZeroPoints(
        chain=[("CumSum",)],
        types=("int8", "uint8"),
        consequence=f"{WRONG} by the zero points",
        advice=_CUT,
    ),
    LowestZeroPoints(
        chain=[_PRODUCTS, ("Relu",)],
        types=("uint8", "int8", "uint16", "int16"),
        consequence=ON_THE_CPU,
        advice=_ROUNDED,
    ),
    NoChain(
        chain=[_PRODUCTS, ("Clip",), ("QuantizeLinear",)],
        consequence=f"{ON_THE_CPU} if the Clip has another range than the integers",
        advice=_ROUNDED,
    ),
    NoChain(
        chain=[("Conv",), ("QuantizeLinear",), ("DequantizeLinear",), ("Clip",)],
        consequence="the runtime may lose the Clip",
        advice=_UNIFORM,
    ),
    NoChain(
        chain=[("Pad",), ("QuantizeLinear",), ("DequantizeLinear",), BORDERS],
        consequence=f"the operators become one, which reads other pixels: {WRONG}",
        advice="convert with --target qnn, or put a Max with the smallest number between them",
    ),
    WeightsOfInt8(
        operators=_PRODUCTS,
        consequence="the runtime rounds the weights again: a quarter of the results differ by a"
        " step or two",
        advice="convert with --target qnn, which divides weights; those of a depthwise Conv need"
        " --activations uint16",
    ),
    Ranks(ranks=range(6), consequence=ON_THE_CPU, advice=_CUT),
    Ranks(
        operators=list_names(
            "Ceil Elu Floor Gelu HardSwish Log Neg Round Sign Sin Softplus Sqrt Tanh"
        ),
        ranks=range(5),
        consequence=ON_THE_CPU,
        advice="convert with --target qnn",
    ),
    NoDilations(operators=("MaxPool",), consequence=ON_THE_CPU, advice=_CUT),
    RefusedAttributes(
        operators=("AveragePool",), values={"ceil_mode": (1,)}, consequence=WRONG, advice=_CUT
    ),
    NoOutputPadding(
        operators=("ConvTranspose",),
        consequence=WRONG,
        advice="reduce the pads at the end instead, or compute it in one group",
    ),
    PlainIndices(
        operators=("GatherND",),
        most=4,
        consequence=f"{WRONG}, or the process ends",
        advice="convert with --target qnn",
    ),
    # With a fallback to the CPU, ONNX Runtime quantizes there ("offload_graph_io_quantization").
    NoQuantizedFloats(
        consequence="without a fallback to the CPU the HTP quantizes it in float16: up to 4 % of"
        " the integers are a step higher",
        advice="convert with --io-type uint8",
    ),
    WholeBlocks(
        size=8,
        operators=("Conv", "MaxPool"),
        consequence=f"{WRONG}, or the process ends",
        advice="gather these rows",
    ),
)
