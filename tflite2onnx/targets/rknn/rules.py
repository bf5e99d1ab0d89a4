"""Rockchip's RKNN-Toolkit2: the operators of 2.1, and what the simulator of 2.5 computes."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    WRONG,
    DequantizedInputs,
    NoChain,
    NoMiddleZeroPoints,
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

_UNIFORM = "convert with --quantization qdq-uniform"
_FLOAT = "convert with --quantization float"

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
            " MeanVarianceNormalization Min Mish Mod Mul Neg PRelu Pad Pow QuantizeLinear ReduceMax"
            " ReduceMean ReduceMin ReduceSum Relu Reshape Resize ReverseSequence RoiAlign ScatterND"
            " Shape Sigmoid Sin Size Slice Softmax Softplus SpaceToDepth Split Sqrt Squeeze Sub"
            " Tanh Tile Transpose Unsqueeze Where"
        ),
        consequence=NOT_LOADED,
        advice="cut the model with --inputs or --outputs, and run this part on the CPU",
        source=_LIST,
    ),
    QuantizedTypes(
        data=("uint8", "int8"),
        weights=("uint8", "int8"),
        consequence=NOT_LOADED,
        advice=_FLOAT,
    ),
    NoTypes(
        types=("uint8", "int8"),
        unless=("QuantizeLinear", "DequantizeLinear", "Cast", "Constant"),
        consequence="the process ends",
        advice=_UNIFORM,
    ),
    DequantizedInputs(
        inputs={"HardSwish": (0,)}, types=("uint8",), consequence=WRONG, advice=_FLOAT
    ),
    DequantizedInputs(inputs={"Sigmoid": (0,)}, types=("int8",), consequence=WRONG, advice=_FLOAT),
    *(
        NoChain(
            operators=("DequantizeLinear", name, "QuantizeLinear"), consequence=WRONG, advice=_FLOAT
        )
        for name in ("Tanh", "HardSigmoid")
    ),
    # The target has other zero points but for inputs and outputs, see nodes.py.
    NoMiddleZeroPoints(
        consequence="the runtime reads the tensor in 128/127 of its scale, which is a step or two",
        advice="convert with --target rknn --io-type float",
    ),
    OneQuantization(consequence=WRONG, advice=_UNIFORM),
)
