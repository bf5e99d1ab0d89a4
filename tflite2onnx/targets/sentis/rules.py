"""Unity Sentis 2.4, by its documents."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    NoDilations,
    NoTypes,
    Operators,
    OpsetRange,
    RefusedAttributes,
    list_names,
)

_OPERATORS = (
    "https://docs.unity3d.com/Packages/com.unity.ai.inference@2.4/manual/supported-operators.html"
)
_MODELS = (
    "https://docs.unity3d.com/Packages/com.unity.ai.inference@2.4/manual/supported-models.html"
)

RULES = (
    OpsetRange(
        least=7,
        most=15,
        consequence="the numbers may be wrong",
        advice="convert with --opset 15",
        source=_MODELS,
    ),
    Operators(
        known=list_names(
            "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool"
            " BatchNormalization Bernoulli BitwiseAnd BitwiseNot BitwiseOr BitwiseXor"
            " BlackmanWindow Cast CastLike Ceil Celu Clip Compress Concat Constant"
            " ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DFT DepthToSpace Div Dropout"
            " Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements GatherND Gemm"
            " GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample HammingWindow"
            " HannWindow HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf"
            " IsNaN LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul"
            " Max MaxPool Mean MelWeightMatrix Min Mish Mod Mul Multinomial Neg"
            " NonMaxSuppression NonZero Not OneHot Or PRelu Pad Pow RandomNormal"
            " RandomNormalLike RandomUniform RandomUniformLike Range Reciprocal ReduceL1"
            " ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd"
            " ReduceSum ReduceSumSquare Relu Reshape Resize RoiAlign Round STFT ScatterElements"
            " ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax Softplus"
            " Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile"
            " TopK Transpose Trilu Unsqueeze Where Xor"
        ),
        consequence=NOT_LOADED,
        advice="convert with --quantization rounded, or cut the model before it",
        source=_OPERATORS,
    ),
    *(
        RefusedAttributes(
            operators=(operator,), values={name: (1,)}, consequence=NOT_LOADED, source=_OPERATORS
        )
        for operator, name in (
            ("AveragePool", "ceil_mode"),
            ("AveragePool", "count_include_pad"),
            ("MaxPool", "ceil_mode"),
            ("MaxPool", "storage_order"),
        )
    ),
    NoDilations(operators=("MaxPool",), consequence=NOT_LOADED, source=_OPERATORS),
    NoTypes(
        types=("string", "complex64", "complex128"),
        consequence=NOT_LOADED,
        advice="cut the model after its operators on these types",
        source=_MODELS,
    ),
)
