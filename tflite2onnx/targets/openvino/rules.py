"""OpenVINO 2026's CPU plugin."""

from tflite2onnx.targets.rules import (
    NOT_LOADED,
    WRONG,
    DequantizedInputs,
    InputsAreRead,
    NoDefaultInputs,
    NoTypes,
    Operators,
    TypesOfEndpoints,
    list_names,
)

_TYPES = "src/plugins/intel_cpu/src/dnnl_extension_utils.cpp of OpenVINO"
_CONVOLUTIONS = (
    "src/plugins/intel_cpu/src/transformations/transformation_pipeline.cpp and"
    " src/plugins/intel_cpu/src/nodes/executors/convolution_implementations.cpp of OpenVINO"
)

RULES = (
    NoDefaultInputs(),
    TypesOfEndpoints(
        inputs=list_names(
            "float32 float16 bfloat16 float64 int8 uint8 int32 int64 uint32 uint64 bool"
        ),
        consequence=NOT_LOADED,
        advice="convert with --quantization float",
        source=_TYPES,
    ),
    NoTypes(
        types=("string",),
        consequence=NOT_LOADED,
        advice="cut the model after its operators on strings",
        source=_TYPES,
    ),
    # OpenVINO computes this product in floats.
    DequantizedInputs(
        operators=("Conv",),
        types=("uint8", "int16", "uint16"),
        consequence="processors with bfloat16 do not load the model",
        advice="convert with --activations uint8, or compile with INFERENCE_PRECISION_HINT f32",
        source=_CONVOLUTIONS,
    ),
    DequantizedInputs(
        operators=("Conv", "Gemm", "MatMul"),
        place=1,
        types=("int8",),
        constant=True,
        consequence=WRONG,
        advice="convert with --weights float, or for processors with VNNI with --weights int8",
    ),
    # Products of int8 saturate without VNNI. Products of uint8 were wrong on a processor with VNNI.
    DequantizedInputs(
        operators=("Gemm", "MatMul"),
        place=1,
        types=("int16", "uint16"),
        constant=False,
        consequence=WRONG,
        advice="compile with LP_TRANSFORMS_MODE NO, or convert with --quantization float",
    ),
    InputsAreRead(
        consequence="inputs after it get other data in OpenVINO's provider of ONNX Runtime",
        advice="remove the input, or run the model in OpenVINO itself",
    ),
    Operators(refused=("BitCast",), consequence=NOT_LOADED, advice="cut the model before it"),
)
