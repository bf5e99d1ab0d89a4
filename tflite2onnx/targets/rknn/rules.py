"""Rockchip's RKNN-Toolkit2 2.1."""

from tflite2onnx.targets.rules import (
    Operators,
    OpsetRange,
    list_names,
)

_LIST = (
    "https://github.com/airockchip/rknn-toolkit2/blob/master/doc/RKNNToolKit2_OP_Support-v2.1.0.md"
)

RULES = (
    OpsetRange(most=19, advice="convert with --opset 19", source=_LIST),
    Operators(
        known=list_names(
            "Add And ArgMax ArgMin AveragePool BatchNormalization Cast Clip Concat Constant"
            " ConstantOfShape Conv ConvTranspose Cos DepthToSpace DequantizeLinear Div Dropout Elu"
            " Equal Erf Exp Expand EyeLike Flatten Floor GRU Gather GatherElements Gemm"
            " GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Identity"
            " If InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log"
            " LogSoftmax LpNormalization MatMul Max MaxPool MaxRoiPool MaxUnpool"
            " MeanVarianceNormalization Min Mish Mod Mul PRelu Pad Pow QuantizeLinear ReduceMax"
            " ReduceMean ReduceMin ReduceSum Relu Reshape Resize ReverseSequence RoiAlign ScatterND"
            " Shape Sigmoid Sin Size Slice Softmax Softplus SpaceToDepth Split Sqrt Squeeze Sub"
            " Tanh Tile Transpose Unsqueeze Where"
        ),
        advice="cut the model with --inputs or --outputs, and run this part on the CPU",
        source=_LIST,
    ),
)
