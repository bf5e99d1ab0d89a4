"""`convert`, the function that users call: check the arguments, convert, write the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import NoneType

from tflite2onnx.conversion import OUT_OF_MEMORY, convert_read_model, suspend_gc
from tflite2onnx.errors import ModelFileError
from tflite2onnx.options import (
    ActivationType,
    ConversionOptions,
    DynamicRange,
    Forms,
    IoLayout,
    IoType,
    NameSource,
    QuantizationMode,
    StateInputs,
    Target,
    WeightType,
    accept_legacy_arguments,
)
from tflite2onnx.pictures.settings import Settings
from tflite2onnx.reader.model import read_model
from tflite2onnx.reader.source import AnySource, ModelSource
from tflite2onnx.result import Result
from tflite2onnx.signatures import warn_unconverted
from tflite2onnx.utils.atomic_files import check_distinct_files


@accept_legacy_arguments
@suspend_gc()
def convert(  # noqa: PLR0913 - options, all of them keywords
    model: AnySource,
    output: str | os.PathLike[str] | None = None,
    layouts: Mapping[str, Sequence[str]] | None = None,
    *,
    io_layout: IoLayout = "auto",
    opset: int | None = None,
    io_type: IoType | Mapping[str, IoType] | None = None,
    quantization: QuantizationMode = "qdq",
    activations: ActivationType = "auto",
    weights: WeightType = "auto",
    dynamic_range: DynamicRange = "quantized",
    forms: Forms = "auto",
    states: StateInputs = "auto",
    target: Target = "onnxruntime",
    allow_custom: bool = False,
    static: bool = False,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    batch: int | str | None = None,
    signature: str | None = None,
    names: NameSource = "tensor",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    float16: bool = False,
    float16_io: bool = False,
    preprocess: Settings = False,
    postprocess: Settings = False,
    external_data: int | None = None,
) -> Result:
    """Convert a TFLite model to ONNX.

    Args:
        model: the path of the TFLite file, or its bytes.
        output: the path of the ONNX file; None writes no file.
        layouts: the layout of single tensors in TFLite and in ONNX, by the name of the tensor:
            {"input": ("NHWC", "NCHW")}.
        io_layout: the layout of inputs and outputs: "auto" (channels first wherever that saves a
            Transpose), "tflite" (as in the TFLite file), or "onnx" (channels first wherever an
            operator gives the axes a meaning).
        opset: the ONNX opset; None chooses the smallest opset from 17 up that has all operators
            that the model needs.
        io_type: the element type of inputs and outputs, for all or by the name of the tensor:
            {"input": "uint8"}. "float" is float32 on a quantized network; "int8" and "uint8" are
            integers where the network itself quantizes its inputs and dequantizes its outputs.
            None keeps the types of the file.
        quantization: how quantized tensors are stored: "qdq" (integers, which operators read
            through DequantizeLinear and write through QuantizeLinear), "symmetric" (likewise, in
            int8 with the zero point 0 throughout; inputs and outputs have other scales than in the
            file, see `Endpoint.scale`), "qoperator" (products are QLinearConv and QLinearMatMul;
            other computations with quantized tensors are refused), "qoperator-mixed" (likewise,
            but other computations read and write as with "qdq") or "float" (float32 throughout,
            weights, inputs and outputs included).
        activations: how int8 activations inside the model are stored: "int8", "uint8" (the same
            real numbers with a zero point that is 128 higher), or "auto" (the type with which ONNX
            Runtime is faster on x86-64). Inputs and outputs always have the file's type.
        weights: how 8-bit weights of integer products are stored: "uint8", "int8" (faster, but
            right only on processors with VNNI or ARM's dot product), "adaptive" (int8, which the
            model reads as uint8 where products of int8 saturate; it finds that out when it is
            loaded), "float" (integers that are dequantized at load: products of real numbers), or
            "auto" (as the target needs them, right on every processor).
        dynamic_range: what becomes of float data that LiteRT quantizes at run time, beside integer
            weights: "quantized" (likewise) or "float" (left as they are).
        forms: the form of a computation that has several forms in ONNX: "fastest" (in ONNX
            Runtime's CPU provider), "canonical" (ONNX's own operator for the computation, which
            other runtimes expect), or "auto" (the form of the target).
        states: whether a run may omit the inputs for the states of a model: "optional" (it then
            starts from the initial values), "required" (for runtimes that treat an input with
            an initial value as a constant), or "auto" (as the target needs them).
        target: the runtime for which options that are left at their defaults are chosen; see
            `options.TARGETS`.
        allow_custom: keep custom operators that cannot be converted as nodes of the domain
            "tflite.custom", with their options as attributes.
        static: fix all sizes as in the file. Otherwise the dynamic axes of inputs stay dynamic if
            all operators support that.
        shapes: the shapes of inputs, by the name of the tensor or of the signature's input. A word
            is the name of a dynamic size, also where the file has a number:
            {"audio": ["batch", 16000]}.
        batch: the number of samples of a batch, or the name of its dynamic size. It is the first
            size of all inputs and outputs. Each sample is computed as if it ran alone; a model
            whose samples are not independent is refused; "loop:4" computes one after another. An
            input or output whose first size is neither dynamic nor 1 gets a new first axis.
        signature: the entry point to convert; None converts the main one.
        names: the source of the names of inputs and outputs: "tensor" or "signature".
        inputs: the names of the tensors that become the inputs, to cut the model at inner tensors;
            None keeps the inputs of the model that the outputs need.
        outputs: the names of the tensors that become the outputs; None keeps the model's outputs.
            The operators that compute the outputs from the inputs are converted, and no others.
        rename: other names for inputs and outputs, {"old": "new"}; the old names are those that
            they have otherwise.
        float16: compute in half precision. Operators that may overflow, or that exist for float32
            only, stay in float32; `Result.float32_nodes` lists them.
        float16_io: with `float16`, the inputs, outputs and states are float16 too.
        preprocess: take a picture as the input, uint8[height, width, 3] in RGB, of any size. True
            resizes and normalizes it as the metadata of the model, or MediaPipe's options for this
            model, say. A mapping, {"mean": 127.5, "std": 127.5}, or a text, "mean=127.5,std=127.5",
            says it otherwise; docs/pictures.md lists all keys.
        postprocess: return boxes, scores, classes, labels and key points in place of the model's
            outputs. True decodes them as the shapes and the metadata of the model say; a mapping,
            {"threshold": 0.4}, or a text, "threshold=0.4", changes this.
        external_data: the size in bytes from which on weights are written to a second file; see
            `Result.save`.

    Returns:
        The ONNX model with a description of its inputs, outputs and states.

    Raises:
        ConversionError: the model cannot be converted; the message gives the reason.
        TypeError: `model` or `output` has a wrong type.
    """
    _check_arguments(model, output)
    options = ConversionOptions(
        layouts={} if layouts is None else layouts,
        io_layout=io_layout,
        io_type=io_type,
        opset=opset,
        quantization=quantization,
        activations=activations,
        weights=weights,
        dynamic_range=dynamic_range,
        forms=forms,
        states=states,
        target=target,
        allow_custom=allow_custom,
        static=static,
        shapes={} if shapes is None else shapes,
        batch=batch,
        signature=signature,
        names=names,
        inputs=inputs,
        outputs=outputs,
        rename={} if rename is None else rename,
        float16=float16,
        float16_io=float16_io,
        preprocess=preprocess,
        postprocess=postprocess,
    )
    result = _read_and_convert(model, options)
    if output is not None:
        result.save(output, external_data)
    return result


def _check_arguments(model: object, output: object) -> None:
    """Check the model and the path of the output.

    Raises:
        TypeError: one is neither a path nor, of a model, the bytes of a file.
        OutputError: the output would replace the model.
    """
    if not isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview, ModelSource)):
        raise TypeError(f"model must be a path or bytes, got {type(model).__name__}")
    if not isinstance(output, (str, os.PathLike, NoneType)):
        raise TypeError(f"output must be a path or None, got {type(output).__name__}")
    if output is not None and isinstance(model, (str, os.PathLike)):
        check_distinct_files(output, model)
        check_distinct_files(f"{os.fspath(output)}.data", model)


def _read_and_convert(model: AnySource, options: ConversionOptions) -> Result:
    """Read and convert a model."""
    try:
        source = read_model(model)
    except MemoryError as error:
        raise ModelFileError(OUT_OF_MEMORY) from error
    warn_unconverted(source, options.signature)
    return convert_read_model(source, model, options)
