"""The conversion, from the TFLite file to the ONNX file.

1. `read_model` the file: operators over tensors, in TFLite's words.
2. TFLite to TFLite: `MODEL_PASSES`; `inline_subgraphs` makes one graph of an entry point; then
   `entry_point_passes` (see `tflite2onnx.passes`).
3. `open_dimensions` names the sizes that stay open; then `NORMALISING_PASSES`.
4. `plan` the orders of all axes at once, with the user's wishes (`interface`, `pin_orders`).
5. `emit` nodes, of the smallest opset that has them, and `check` them; `rename_endpoints` calls
   inputs and outputs as a signature does.
6. `result_of` assembles the ONNX model and its metadata; `Result.save` writes it.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import DEFAULT_OPSET, NeedsOpset
from tflite2onnx.compat import accept_legacy_arguments
from tflite2onnx.emit import Emitted, emit, prefers_uint8, sites
from tflite2onnx.errors import (
    FixedSizeError,
    ModelFileError,
    OptionError,
    UnsupportedOperators,
)
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.interface import interface, pin_orders, read_layouts
from tflite2onnx.layout import Plan, Site, plan
from tflite2onnx.op import operator_for
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import (
    MODEL_PASSES,
    NORMALISING_PASSES,
    apply_passes,
    entry_point_passes,
)
from tflite2onnx.passes.dynamic_shapes import check_open, open_dimensions
from tflite2onnx.passes.flex.translate import explain_untranslated
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.reader.metadata import describe_model
from tflite2onnx.reader.model import read_model
from tflite2onnx.result import Result, result_of
from tflite2onnx.signatures import (
    find_signature,
    rename_endpoints,
    signature_io_names,
    warn_unconverted,
)
from tflite2onnx.utils.atomic_files import check_distinct_files
from tflite2onnx.validity import check

Planner = Callable[[Sequence[Site]], Plan]
_DEFAULT = ConversionOptions()

_logger = logging.getLogger(__name__)


@contextmanager
def _suspend_gc() -> Iterator[None]:
    """Switch off the search for cycles, of which a conversion makes none.

    It would walk over everything there is again and again, in a third of all the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@accept_legacy_arguments
@_suspend_gc()
def convert(  # noqa: PLR0913 - options, all of them keywords
    model: str | os.PathLike[str] | bytes,
    output: str | os.PathLike[str] | None = None,
    layouts: Mapping[str, Sequence[str]] | None = None,
    *,
    io_layout: str = "auto",
    opset: int | None = None,
    quantization: str = "qdq",
    activations: str = "auto",
    allow_custom: bool = False,
    static: bool = False,
    signature: str | None = None,
    names: str = "tensor",
    weights: str = "auto",
) -> Result:
    """Convert a TFLite model, given as a path or as the bytes of its file, to ONNX.

    Args:
        model: the TFLite model.
        output: where to write the ONNX file; nothing is written if None.
        layouts: for each tensor named, its layout in TFLite and in ONNX, such as
            {"input": ("NHWC", "NCHW")}.
        io_layout: "auto" (inputs and outputs channels first wherever that saves a Transpose),
            "tflite" (as in the TFLite file), "onnx" (channels first wherever an operator gives
            meaning to their layout).
        opset: the ONNX opset; the smallest that the model needs, from 17 up, if None.
        quantization: what becomes of quantized tensors: "qdq" (integers, which operators read
            through DequantizeLinear and write through QuantizeLinear) or "float" (real numbers
            throughout, weights, inputs and outputs included).
        activations: how int8 activations are kept inside the model: "int8", "uint8" (the same
            numbers with the zero point 128 higher), or "auto" (what ONNX Runtime is faster with
            on x86-64). Inputs and outputs keep the file's type in every case.
        allow_custom: leave custom operators that cannot be converted in the graph, as nodes of
            the domain "tflite.custom" with their options as attributes.
        static: whether to fix all sizes as they are in the file. Else those of inputs that the
            file does not fix stay open, if all operators can do without knowing them.
        signature: which entry point of the model to convert; the main one if None.
        names: what inputs and outputs are called by: the "tensor", or the "signature".
        weights: how 8-bit weights of products are stored: "uint8", "int8" (faster, and right on
            processors with VNNI or ARM's dot product only), or "auto" (right everywhere).

    Raises:
        ConversionError: the model cannot be converted; the message says why.
    """
    options = ConversionOptions(
        {} if layouts is None else layouts,
        io_layout,
        opset,
        quantization,
        activations,
        allow_custom,
        static,
        signature,
        names,
        weights,
    )
    if output is not None and not isinstance(model, bytes):
        check_distinct_files(output, model)
    try:
        source = read_model(model)
        warn_unconverted(source, signature)
        result = convert_model(source, options, notes=_metadata_or_empty(source, model))
        if output is not None:
            result.save(output)
    except MemoryError as error:
        raise ModelFileError("the model takes more memory than there is") from error
    return result


def convert_model(
    model: Model,
    options: ConversionOptions = _DEFAULT,
    *,
    notes: Mapping[str, object] | None = None,
    planner: Planner = plan,
) -> Result:
    """Convert a model that is already read; `planner` chooses the orders of all tensors.

    `notes` go into the metadata of the ONNX model (see `metadata.describe_model`).
    """
    index, signature = find_signature(model, options.signature)
    model = apply_passes(MODEL_PASSES, model)
    graph = apply_passes(entry_point_passes(model, index), inline_subgraphs(model, index))
    if not graph.outputs:
        raise ModelFileError("the model has no output: there is nothing to convert")
    emitted = _convert_with_open_sizes(graph, options, planner)
    if options.names == "signature":
        emitted = rename_endpoints(emitted, model.graphs[index], signature)
    more = {"signatures": signature_io_names(model, index, emitted), "metadata": notes}
    return result_of(emitted, graph.name or "main", more)


def _convert_with_open_sizes(graph: Graph, options: ConversionOptions, planner: Planner) -> Emitted:
    """Emit a graph with open sizes if all operators can do with them, else at the file's sizes."""
    if options.static:
        return _normalise_plan_emit(_with_file_sizes(graph, options), options, planner)
    try:
        named = open_dimensions(graph, _operators(options))
        return _normalise_plan_emit(named, options, planner)
    except (FixedSizeError, UnsupportedOperators) as error:
        # What is wrong at any size is wrong here too.
        emitted = _normalise_plan_emit(_with_file_sizes(graph, options), options, planner)
        _logger.warning("all sizes are fixed as they are in the file, since %s", error)
        return emitted


def _with_file_sizes(graph: Graph, options: ConversionOptions) -> Graph:
    """Return a graph of which only the sizes stay open that nobody foresees."""
    operator_of = _operators(options)
    try:
        return open_dimensions(graph, operator_of, inputs=False)
    except FixedSizeError as error:
        # It may be due to one operator of many that cannot be converted: all are named.
        ops = apply_passes(NORMALISING_PASSES, graph).every_op()
        sites([*map(operator_of, ops)])
        raise UnsupportedOperators([error]) from error


def _operators(options: ConversionOptions) -> Callable[[Op], Operator]:
    """Return what gives each operator its converter, or keeps it if that is asked for."""

    def operator_of(op: Op) -> Operator:
        return operator_for(op, keep=options.allow_custom, why=explain_untranslated(op))

    return operator_of


def _normalise_plan_emit(graph: Graph, options: ConversionOptions, planner: Planner) -> Emitted:
    """Normalise, plan and emit a graph, of whose sizes some may stay open."""
    asked = read_layouts(options.layouts, graph)
    _logger.debug("read %d operators, %d tensors", len(graph.ops), len(graph.tensors))
    normal = apply_passes(NORMALISING_PASSES, graph)
    # An output that is found to be constant is another tensor now.
    now = dict(zip(graph.outputs, normal.outputs, strict=True))
    wanted = {now.get(tensor, tensor): order for tensor, order in asked.items()}
    graph = pin_orders(normal, wanted)
    _logger.debug("normalised to %d operators", len(graph.ops))
    operators = [*map(_operators(options), graph.every_op())]
    inside = sites(operators)
    check_open([(operator.op, operator) for operator in operators])
    chosen = planner([interface(graph, wanted, options.io_layout), *inside])
    _logger.debug("planned %d bytes to be moved", chosen.bytes_moved)
    emitted = _with_opset(graph, operators, chosen, options)
    _logger.debug("emitted %d nodes of opset %d", len(emitted.nodes), emitted.opset)
    return emitted


def _with_opset(
    graph: Graph, operators: Sequence[Operator], chosen: Plan, options: ConversionOptions
) -> Emitted:
    """Emit for the opset asked for, else for the smallest that has all nodes."""
    auto = options.activations == "auto"
    builder = partial(
        Builder,
        opset_is_fixed=options.opset is not None,
        float_only=options.quantization == "float",
        int8_as_uint8=options.activations == "uint8" or (auto and prefers_uint8(operators)),
        weights=options.weights,
    )
    version = options.opset or DEFAULT_OPSET
    while True:
        try:
            emitted = emit(graph, operators, chosen, builder(version))
        except NeedsOpset as need:
            if options.opset is not None:
                raise OptionError(str(need)) from need
            version = need.version
        else:
            check(emitted, graph)
            return emitted


def _metadata_or_empty(source: Model, model: str | os.PathLike[str] | bytes) -> dict[str, object]:
    """Return what the model's authors say of it; that it is damaged is no reason not to convert."""
    try:
        return describe_model(source, model)
    except ModelFileError as error:
        _logger.warning("%s", error)
        return {}
