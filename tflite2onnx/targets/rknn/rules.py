"""Rockchip's RKNN-Toolkit2: the operators of 2.1, and what the simulator of 2.5 computes."""

from math import inf

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    WRONG,
    ConstantInputs,
    InputRanges,
    InputsAreRead,
    NoChain,
    NoChainOfConstants,
    NoMiddleZeroPoints,
    NoRescaledData,
    NoReshapedPixels,
    NoTypes,
    OneQuantization,
    OneScaleOfGroups,
    Operators,
    OpsetRange,
    OutputsAreEnds,
    QuantizedTypes,
    ShortNames,
    SmallWindows,
    StridesBesideIntegers,
    list_names,
)

_LIST = (
    "https://github.com/airockchip/rknn-toolkit2/blob/master/doc/RKNNToolKit2_OP_Support-v2.1.0.md"
)

_UNIFORM = "convert with --quantization qdq-uniform"
_FLOAT = "convert with --quantization float"

# Where the results of functions of 8 bits change. RKNN stretches a larger input to this range.
RANGES = {
    "HardSigmoid": (-2.5, 2.5),
    "HardSwish": (-3.0, inf),
    "Sigmoid": (-6.8, 6.8),
    "Tanh": (-3.1, 3.1),
}

# RKNN makes one function of a product and of a function after it, and of other pairs.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
BEFORE_MUL = (*PRODUCTS, "AveragePool")  # joined with a product of a constant after it
JOINED = ("Add", "Clip", "HardSwish", "LeakyRelu", "Neg", "PRelu", "Relu", "Sigmoid", "Sub", "Tanh")
PAIRS = (
    (PRODUCTS, JOINED),
    (("Add", "AveragePool", "Mul", "Neg", "Sub"), ("Relu",)),
    (("Neg",), ("Neg",)),
)
LIMITS = ("Clip", "Relu")  # what they read gets the scale of their result
_STORED = (("QuantizeLinear",), ("DequantizeLinear",))
LARGEST_WINDOW = 7  # of an average: a larger one is made of averages, each of which is rounded
LARGEST_STRIDE = 7  # RKNN divides larger ones that are even, and lacks the scales of the parts

RULES = (
    OpsetRange(most=19, consequence=NOT_LOADED, advice="convert with --opset 19", source=_LIST),
    Operators(
        known=list_names(
            "Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Clip Concat Constant"
            " ConstantOfShape Conv ConvTranspose Cos DepthToSpace DequantizeLinear Div Dropout Elu"
            " Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements Gemm"
            " GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Identity"
            " If InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log"
            " LogSoftmax LpNormalization MatMul Max MaxPool MaxRoiPool MaxUnpool"
            " MeanVarianceNormalization Min Mish Mod Mul Neg PRelu Pad Pow QuantizeLinear"
            " Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Resize"
            " ReverseSequence RoiAlign ScatterND Shape Sigmoid Sin Size Slice Softmax Softplus"
            " SpaceToDepth Split Sqrt Squeeze Sub Tanh Tile Transpose Unsqueeze Where"
        ),
        consequence=NOT_LOADED,
        advice="cut the model with --inputs or --outputs, and run this part on the CPU",
        source=_LIST,
    ),
    QuantizedTypes(
        data=("uint8", "int8"),
        consequence=NOT_LOADED,
        advice=_FLOAT,
    ),
    NoTypes(
        types=("uint8", "int8"),
        unless=("QuantizeLinear", "DequantizeLinear", "Cast", "Constant"),
        consequence="the process ends",
        advice=_UNIFORM,
    ),
    InputRanges(ranges=RANGES, consequence=WRONG, advice="quantize the input to this range"),
    *(
        NoChain(
            chain=[before, *_STORED, after],
            consequence=f"the operators become one, without rounding and limits between: {WRONG}",
            advice="convert with --target rknn",
        )
        for before, after in PAIRS
    ),
    NoChainOfConstants(
        products=BEFORE_MUL,
        consequence=f"the operators become one, without rounding and limits between: {WRONG}",
        advice="convert with --target rknn",
    ),
    NoRescaledData(
        operators=LIMITS,
        consequence=f"the data get the scale and zero point of the result: {WRONG}",
        advice="convert with --target rknn",
    ),
    # RKNN makes one operator of them ("_to_sdpa"), and ends with "list index out of range".
    *(
        NoChain(
            chain=[("MatMul",), *_STORED, *scaled, ("Softmax",), *_STORED, ("MatMul",)],
            consequence=f"{NOT_LOADED} (IndexError)",
            advice="cut the model with --inputs or --outputs, and run this part on the CPU",
        )
        for scaled in ((), (("Add", "Div", "Mul"), *_STORED))
    ),
    NoChain(
        chain=[("Min",), *_STORED, ("Max",), *_STORED, LIMITS],
        consequence=f"the operators become one, without rounding and limits between: {WRONG}",
        advice="cut the model with --inputs or --outputs, and run this part on the CPU",
    ),
    ConstantInputs(
        operators=("MatMul",),
        inputs={"MatMul": (1,)},
        consequence="sums of products are numbers of float16: results differ by a step, and if the"
        " sums are far larger than the range of the results, by up to 20",
        advice="verify the outputs, or cut the model with --inputs or --outputs",
    ),
    InputsAreRead(
        consequence="RKNN's model lacks the input, and the places of inputs after it change",
        advice="convert with --inputs, or feed the others only",
    ),
    ShortNames(most=126, consequence=NOT_LOADED, advice="rename it in the ONNX model"),
    OutputsAreEnds(consequence=NOT_LOADED, advice="convert with --target rknn"),
    # The target has other zero points but for inputs and outputs, see nodes.py.
    NoMiddleZeroPoints(
        consequence=f"the tensor is read in 128/127 of its scale: {WRONG} by a step or two",
        advice="convert with --target rknn --io-type float",
    ),
    SmallWindows(
        operators=("AveragePool", "GlobalAveragePool", "ReduceMean"),
        most=LARGEST_WINDOW,
        consequence=f"an average of averages, which are rounded: {WRONG}",
        advice="convert with --target rknn, or average with a Conv",
    ),
    OneQuantization(consequence=WRONG, advice=_UNIFORM),
    NoReshapedPixels(
        consequence="the compiler of the runtime does not end",
        advice="convert with --target rknn, or put a Max between them",
    ),
    StridesBesideIntegers(
        most=LARGEST_STRIDE,
        window=31,
        consequence=f"{NOT_LOADED} (KeyError)",
        advice=_FLOAT,
    ),
    OneScaleOfGroups(
        consequence=f"{NOT_LOADED} (clip_truncate < 0)",
        advice="convert with --target rknn",
    ),
)
