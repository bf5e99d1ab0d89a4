"""ONNX Runtime's CoreML provider, as an ML program."""

from tflite2onnx.targets.rules import (
    ON_THE_CPU,
    ConstantInputs,
    Operators,
    StaticShapes,
    list_names,
)

_OPERATORS = (
    "https://github.com/microsoft/onnxruntime/blob/main/tools/ci_build/github/apple/"
    "coreml_supported_mlprogram_ops.md"
)
_DOCUMENT = "https://onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html"

RULES = (
    Operators(
        known=list_names(
            "Add ArgMax AveragePool BatchNormalization Cast Ceil Clip Concat Constant Conv"
            " ConvTranspose Cos DepthToSpace Div Elu Erf Exp GatherND Gelu Gemm GlobalAveragePool"
            " GlobalMaxPool GridSample GroupNormalization HardSigmoid Identity"
            " InstanceNormalization LayerNormalization LeakyRelu MatMul Max MaxPool Mul PRelu Pow"
            " Range Reciprocal ReduceMax ReduceMean ReduceSum Relu Reshape Resize Round Shape"
            " Sigmoid Sin Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh Tile Transpose"
            " Unsqueeze"
        ),
        consequence=ON_THE_CPU,
        advice="convert with --quantization float if the model is quantized",
        source=_OPERATORS,
    ),
    ConstantInputs(
        inputs={"Gemm": (1,), "ConvTranspose": (1, 2), "Conv": (2,), "Slice": (1, 2, 3, 4)},
        consequence=ON_THE_CPU,
        source=_OPERATORS,
    ),
    StaticShapes(
        consequence="nodes with dynamic sizes may be slow, or run on ONNX Runtime's CPU provider",
        advice="convert with --static",
        source=_DOCUMENT,
    ),
)
