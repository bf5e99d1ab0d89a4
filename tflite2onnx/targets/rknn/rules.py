"""Rockchip's RKNN-Toolkit2: the operators of 2.1, and what the simulator of 2.5 computes."""

from tflite2onnx.targets.rules import (
    DequantizedInputs,
    NoChain,
    NoTypes,
    OneQuantization,
    Operators,
    OpsetRange,
    QuantizedTypes,
    list_names,
)

_LIST = (
    "https://github.com/airockchip/rknn-toolkit2/blob/master/doc/RKNNToolKit2_OP_Support-v2.1.0.md"
)

_MEASURED = "docs/runtimes.md"
_UNIFORM = "convert with --quantization qdq-uniform"
_FLOAT = "the results are wrong: convert with --quantization float"

RULES = (
    OpsetRange(most=19, advice="convert with --opset 19", source=_LIST),
    Operators(
        known=list_names(
            "Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Clip Concat Constant"
            " ConstantOfShape Conv ConvTranspose Cos DepthToSpace DequantizeLinear Div Dropout Elu"
            " Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements Gemm"
            " GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Identity"
            " If InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log"
            " LogSoftmax LpNormalization MatMul Max MaxPool MaxRoiPool MaxUnpool"
            " MeanVarianceNormalization Min Mish Mod Mul Neg PRelu Pad Pow QuantizeLinear ReduceMax"
            " ReduceMean ReduceMin ReduceSum Relu Reshape Resize ReverseSequence RoiAlign ScatterND"
            " Shape Sigmoid Sin Size Slice Softmax Softplus SpaceToDepth Split Sqrt Squeeze Sub"
            " Tanh Tile Transpose Unsqueeze Where"
        ),
        advice="cut the model with --inputs or --outputs, and run this part on the CPU",
        source=_LIST,
    ),
    QuantizedTypes(
        data=("uint8", "int8"),
        weights=("uint8", "int8"),
        advice="RKNN does not load it: convert with --quantization float",
        source=_MEASURED,
    ),
    # The simulator ends with a fault.
    NoTypes(
        types=("uint8", "int8"),
        unless=("QuantizeLinear", "DequantizeLinear", "Cast", "Constant"),
        advice=_UNIFORM,
        source=_MEASURED,
    ),
    DequantizedInputs(
        inputs={"HardSwish": (0,)}, types=("uint8",), advice=_FLOAT, source=_MEASURED
    ),
    DequantizedInputs(inputs={"Sigmoid": (0,)}, types=("int8",), advice=_FLOAT, source=_MEASURED),
    *(
        NoChain(
            operators=("DequantizeLinear", name, "QuantizeLinear"), advice=_FLOAT, source=_MEASURED
        )
        for name in ("Tanh", "HardSigmoid")
    ),
    OneQuantization(advice=f"{_UNIFORM}; the runtime uses one of the scales", source=_MEASURED),
)
