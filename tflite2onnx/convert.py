"""The conversion, from the TFLite file to the ONNX file.

1. `read` the file: operators over tensors, in TFLite's words.
2. TFLite to TFLite, the whole model: `translated` gives Flex operators TFLite's names,
   `with_computations` makes options of sub-graphs that say how two elements become one, and
   `with_tables` makes constants of hash tables.
3. TFLite to TFLite, the graph of one entry point: `inlined` puts calls in their place, `shaped`
   corrects the shapes of custom operators, `explicit` makes inputs and outputs of variables,
   `without_lists` makes tensors of TensorFlow's lists, `paired` makes pairs of complex numbers,
   `set_items` finds what sets items of lists, `settled` finds the sizes that the file only
   guesses, `opened` names the sizes that stay open, and `normalise` brings operators into fewer
   forms.
4. `plan` the orders of all axes at once, with the user's wishes (`interface`, `pin`).
5. `emit` nodes, of the smallest opset that has them, and `check` them; `renamed` calls inputs and
   outputs as a signature does.
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
from tflite2onnx.compat import with_old_names
from tflite2onnx.emit import Emitted, emit, prefers_uint8, sites
from tflite2onnx.errors import (
    FixedSizeError,
    ModelFileError,
    OptionError,
    UnsupportedOperators,
)
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.interface import interface, pin, read_layouts
from tflite2onnx.layout import Plan, Site, plan
from tflite2onnx.op import has_converter, operator_for, rules_for, shapes_for
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes.dynamic_shapes import check_open, opened, settled
from tflite2onnx.passes.flex.translate import explain_untranslated, translated
from tflite2onnx.passes.fold_hash_tables import with_tables
from tflite2onnx.passes.inline_subgraphs import inlined
from tflite2onnx.passes.lower_complex import paired
from tflite2onnx.passes.normalise import drop_dead, normalise
from tflite2onnx.passes.override_declared_shapes import shaped
from tflite2onnx.passes.resolve_computations import with_computations
from tflite2onnx.passes.state.lift_variables import explicit
from tflite2onnx.passes.tensor_lists.fuse_list_assignment import set_items
from tflite2onnx.passes.tensor_lists.lower_tensor_lists import without_lists
from tflite2onnx.reader.metadata import described
from tflite2onnx.reader.model import read
from tflite2onnx.result import Result, result_of
from tflite2onnx.signatures import entry, renamed, told, warn
from tflite2onnx.utils.atomic_files import keep_apart
from tflite2onnx.validity import check

Planner = Callable[[Sequence[Site]], Plan]
_DEFAULT = ConversionOptions()

_logger = logging.getLogger(__name__)


@contextmanager
def _without_collector() -> Iterator[None]:
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


@with_old_names
@_without_collector()
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
        {} if layouts is None else layouts, io_layout, opset, quantization, activations,
        allow_custom, static, signature, names, weights,
    )  # fmt: skip
    if output is not None and not isinstance(model, bytes):
        keep_apart(output, model)
    try:
        source = read(model)
        warn(source, signature)
        result = convert_model(source, options, notes=_notes(source, model))
        if output is not None:
            result.save(output)
    except MemoryError as error:
        message = "the model takes more memory than there is"
        raise ModelFileError(message) from error
    return result


def convert_model(
    model: Model,
    options: ConversionOptions = _DEFAULT,
    *,
    notes: Mapping[str, object] | None = None,
    planner: Planner = plan,
) -> Result:
    """Convert a model that is already read; `planner` chooses the orders of all tensors.

    `notes` go into the metadata of the ONNX model (see `metadata.described`).
    """
    index, signature = entry(model, options.signature)
    model = with_tables(with_computations(translated(model, has_converter)))
    graph = _dataflow(model, index)
    if not graph.outputs:
        message = "the model has no output: there is nothing to convert"
        raise ModelFileError(message)
    emitted = _sized(graph, options, planner)
    if options.names == "signature":
        emitted = renamed(emitted, model.graphs[index], signature)
    more = {"signatures": told(model, index, emitted), "metadata": notes}
    return result_of(emitted, graph.name or "main", more)


def _dataflow(model: Model, index: int) -> Graph:
    """Return a sub-graph with all that it calls: of real numbers, without variables."""
    graph = inlined(model, index)
    graph = shaped(graph, shapes_for)
    graph = explicit(model, graph, rules_for, index)
    graph = without_lists(graph, operator_for, has_converter)
    graph = paired(graph)
    graph = drop_dead(set_items(graph))  # or else the sizes of what it cuts would be open
    return settled(graph, operator_for)


def _sized(graph: Graph, options: ConversionOptions, planner: Planner) -> Emitted:
    """Emit a graph with open sizes if all operators can do with them, else at the file's sizes."""
    if options.static:
        return _emitted(_as_filed(graph, options), options, planner)
    try:
        named = opened(graph, _operators(options))
        return _emitted(named, options, planner)
    except (FixedSizeError, UnsupportedOperators) as error:
        # What is wrong at any size is wrong here too.
        emitted = _emitted(_as_filed(graph, options), options, planner)
        _logger.warning("all sizes are fixed as they are in the file, since %s", error)
        return emitted


def _as_filed(graph: Graph, options: ConversionOptions) -> Graph:
    """Return a graph of which only the sizes stay open that nobody foresees."""
    operator_of = _operators(options)
    try:
        return opened(graph, operator_of, inputs=False)
    except FixedSizeError as error:
        # It may be due to one operator of many that cannot be converted: all are named.
        ops = normalise(graph, rules_for).every_op()
        sites([*map(operator_of, ops)])
        raise UnsupportedOperators([error]) from error


def _operators(options: ConversionOptions) -> Callable[[Op], Operator]:
    """Return what gives each operator its converter, or keeps it if that is asked for."""

    def operator_of(op: Op) -> Operator:
        return operator_for(op, keep=options.allow_custom, why=explain_untranslated(op))

    return operator_of


def _emitted(graph: Graph, options: ConversionOptions, planner: Planner) -> Emitted:
    """Normalise, plan and emit a graph, of whose sizes some may stay open."""
    asked = read_layouts(options.layouts, graph)
    _logger.debug("read %d operators, %d tensors", len(graph.ops), len(graph.tensors))
    normal = normalise(graph, rules_for)
    # An output that is found to be constant is another tensor now.
    now = dict(zip(graph.outputs, normal.outputs, strict=True))
    wanted = {now.get(tensor, tensor): order for tensor, order in asked.items()}
    graph = pin(normal, wanted)
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
        Builder, fixed=options.opset is not None, plain=options.quantization == "float",
        unsigned=options.activations == "uint8" or (auto and prefers_uint8(operators)),
        weights=options.weights,
    )  # fmt: skip
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


def _notes(source: Model, model: str | os.PathLike[str] | bytes) -> dict[str, object]:
    """Return what the model's authors say of it; that it is damaged is no reason not to convert."""
    try:
        return described(source, model)
    except ModelFileError as error:
        _logger.warning("%s", error)
        return {}
