"""`convert`, the function that users call: check the arguments, convert, write the file."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any

from tflite2onnx.errors import ConversionError, UnsupportedOperators
from tflite2onnx.graph import Model
from tflite2onnx.options import (
    OPTION_TYPES,
    ActivationType,
    Caches,
    ConversionOptions,
    DynamicRange,
    Forms,
    IoLayout,
    IoType,
    Lengths,
    NameSource,
    QuantizationMode,
    StateInputs,
    WeightType,
    accept_legacy_arguments,
)
from tflite2onnx.pictures.settings import Settings
from tflite2onnx.reader.model import list_entry_points, read_entry_point, read_model
from tflite2onnx.reader.source import AnySource, ModelSource
from tflite2onnx.result import Result
from tflite2onnx.signatures import warn_unconverted
from tflite2onnx.stages import convert_read_model, prepare_process
from tflite2onnx.targets.table import DEFAULT, Target
from tflite2onnx.utils.atomic_files import check_distinct_files
from tflite2onnx.utils.console import handle_records


@accept_legacy_arguments
@prepare_process()
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
    caches: Caches = "separate",
    lengths: Lengths = "auto",
    target: Target = DEFAULT,
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

        result = convert("model.tflite", "model.onnx", io_layout="tflite")
        print(result.inputs[0].onnx_shape, result.nodes)

    Args:
        model: the path of the TFLite file, or its bytes.
        output: the path of the ONNX file; None writes no file.
        layouts: the layout of single tensors, inner tensors too, in TFLite and in ONNX, by the name
            of the tensor: {"input": ("NHWC", "NCHW")}.
        io_layout: the layout of inputs and outputs. auto: channels first where that saves a
            Transpose; tflite: as in the TFLite file; onnx: channels first wherever the meaning of
            the axes is known.
        opset: the ONNX opset, at least 9 (default: the smallest opset from 17 on that has all
            operators of the model).
        io_type: the element type of inputs and outputs, or of one by its name: float for float32,
            or int8 or uint8 in the network's own scales (default: as in the file).
        quantization: what quantized tensors become. qdq: integers, as in the file; qdq-uniform:
            integers of one scale for each tensor, for NPUs; symmetric: int8 with the zero point 0;
            qoperator: QLinearConv and QLinearMatMul, from opset 10 on, and other integer arithmetic
            is refused; qoperator-mixed: the same, and other integer arithmetic as with qdq;
            rounded: floats that hold the numbers of the integers; float: floats.
        activations: the type of inner int8 activations. int8: as in the file; uint8: the same real
            numbers; uint16: uint8, with 16 bits around products and sums, if the target has them;
            auto: whichever is faster on x86-64.
        weights: the type of 8-bit weights. uint8: right on every processor; int8: up to four times
            as fast, but wrong on x86-64 processors without VNNI; adaptive: int8 that is read as
            uint8 on those processors; float: floats, computed when the model loads; auto: what the
            target needs, right on every processor.
        dynamic_range: what becomes of float data that LiteRT quantizes while it runs. quantized:
            the same integers; float: floats, for runtimes without DynamicQuantizeLinear.
        forms: which ONNX nodes a computation becomes, if several are equal. fastest: the fastest in
            ONNX Runtime's CPU provider; canonical: ONNX's own operators, for other runtimes; auto:
            what the target needs.
        states: whether a run must have the states of a model as inputs. optional: a run without
            them starts from their initial values; required: every run has them, for runtimes that
            treat an input with an initial value as a constant; auto: what the target needs.
        caches: the caches of a language model before and after a step. separate: different tensors;
            shared: the same memory, in which attention writes a row.
        lengths: what becomes of signatures that differ only in a length, such as prefill_8 and
            prefill_32. each: one file each; joined: one graph of a dynamic length, if it is proven
            to equal each signature; auto: joined in bundles of dynamic sizes, else each.
        target: the runtime to convert for, which sets the options that are not given.
        allow_custom: keep operators that cannot be converted as nodes of the domain tflite.custom,
            or tflite.builtin for built-in operators, with their options as attributes.
        static: fix all sizes as in the file (default: dynamic axes of inputs stay dynamic if all
            operators support that).
        shapes: the shapes of inputs, by the name of the tensor or of the signature's input. A word
            is the name of a dynamic size, also where the file has a number:
            {"audio": ["batch", 16000]}.
        batch: convert for a batch of independent samples: a number, or a word for any number;
            loop:N and loop:NAME compute one sample after another, even if an operator mixes
            samples; inputs and outputs get a new first axis unless theirs is dynamic or 1.
        signature: the entry point to convert, if the model has several (default: the main one).
        names: the names of inputs and outputs. tensor: as in the TFLite graph; signature: as in the
            signature.
        inputs: cut the model: these tensors, also inner ones, are its inputs, and operators before
            them are left out (default: the inputs of the model that the outputs need).
        outputs: cut the model: these tensors, also inner ones, are its outputs, and operators after
            them are left out (default: the outputs of the model).
        rename: new names of inputs and outputs; the old name is the one that the conversion prints
            without this option.
        float16: compute in half precision, with weights of half the size; operators whose numbers
            float16 cannot hold stay in float32, and are listed.
        float16_io: with `float16`, inputs, outputs and states are float16 too (default: float32).
        preprocess: take a picture of any size, uint8[height, width, 3], which the model resizes and
            normalizes as its metadata say, or as given by mean=, std=, channels=rgb|bgr|gray,
            resize=stretch|letterbox|center, pad=, layout=HWC|CHW|NHWC|NCHW, size=HxW and
            type=uint8|float32.
        postprocess: return boxes, scores, classes, labels and key points, decoded as the shapes and
            the metadata of the model say, or as given by
            decoder=mediapipe|yolov5|yolov8|ssd|detections|scores, scores=sigmoid|softmax|none,
            threshold=, iou=, max=, units=pixels|fractions, coordinates=fractions|pixels and
            labels=FILE.
        external_data: the size in bytes from which on weights are written to a second file; see
            `Result.save`.

    Returns:
        The ONNX model with a description of its inputs, outputs and states.

    Raises:
        ConversionError: the model cannot be converted, or options are wrong or contradict each
            other; the message gives the reason, and no file is written.
        TypeError: `model` or `output` has a wrong type.
    """
    given: dict[str, Any] = {name: v for name, v in locals().items() if name in OPTION_TYPES}
    _check_arguments(model, output)
    for name in ("layouts", "shapes", "rename"):
        given[name] = {} if given[name] is None else given[name]
    options = ConversionOptions(**given)

    def read_source() -> Model:
        source = read_model(model)
        warn_unconverted(source, options.signature)
        return source

    try:
        result = convert_read_model(read_source, model, options)
    except UnsupportedOperators as error:
        order = "the sizes of `shapes` must be in the order of the TFLite file"
        hint = _suggest_signatures(model, options) or (order if options.shapes else "")
        raise UnsupportedOperators(error.problems, hint) if hint else error from error
    if output is not None:
        result.save(output, external_data)
    return result


def _suggest_signatures(model: AnySource, options: ConversionOptions) -> str:
    """Return a hint at other signatures, which can be converted; "" if there are none.

    The first signature of a model that is trained on a device is often its training.
    """
    signatures = list_entry_points(model)
    failed = signatures.get(options.signature or "", 0)
    others = {graph: key for key, graph in reversed(signatures.items()) if graph != failed}
    with handle_records(lambda _: None):  # the warnings are about other signatures
        found = [key for key in reversed(others.values()) if _is_convertible(model, options, key)]
    if not found:
        return ""
    noun = "signature" if len(found) == 1 else "signatures"
    return (
        f"the {noun} {', '.join(found)} can be converted: choose"
        f' signature="{found[0]}" (--signature {found[0]} on the command line)'
    )


def _is_convertible(model: AnySource, options: ConversionOptions, key: str) -> bool:
    try:
        read = partial(read_entry_point, model, key)
        convert_read_model(read, model, replace(options, signature=key))
    except ConversionError:
        return False
    return True


def _check_arguments(model: object, output: object) -> None:
    """Check the model and the path of the output.

    Raises:
        TypeError: the output is no path, or the model is neither a path nor the bytes of a file.
        OutputError: the output would replace the model.
    """
    if not isinstance(model, (str, os.PathLike, bytes, bytearray, memoryview, ModelSource)):
        raise TypeError(f"model must be a path or bytes, got {type(model).__name__}")
    if not isinstance(output, (str, os.PathLike, NoneType)):
        raise TypeError(f"output must be a path or None, got {type(output).__name__}")
    if output is not None and isinstance(model, (str, os.PathLike)):
        check_distinct_files(output, model)
        check_distinct_files(f"{os.fspath(output)}.data", model)
