"""The stages of a conversion, from the TFLite file to the ONNX model.

1. `read_model` reads the file: operators over tensors, with TFLite's names.
2. The passes, TFLite to TFLite (see `tflite2onnx.passes`): `cut_model` selects the part of the
   graph that is converted; `MODEL_PASSES` over the whole model; `inline_subgraphs` makes one graph
   of an entry point, `resize_inputs` and `change_io_types` change the graph's inputs and outputs as
   the user wants, and `list_entry_point_passes` run over it.
3. `name_dynamic_axes` names the dynamic sizes; `make_canonical` verifies the operators, and makes
   them canonical (`canonical.py`).
4. `plan` chooses the orders of all axes at once, within the user's layouts (`interface`,
   `pin_orders`); `quantize.plan` chooses how quantized operands are stored and read.
5. `emit` makes the nodes, for the smallest opset that has them, and `check` checks them;
   `rename_endpoints` gives inputs and outputs the names of a signature.
6. `make_result` assembles the ONNX model and its metadata; `Result.save` writes it (`convert.py`).
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tflite2onnx import quantize
from tflite2onnx.axis_letters import check_letters, name_axes
from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import NeedsOpset
from tflite2onnx.builder.opsets import DEFAULT_OPSET
from tflite2onnx.canonical import OperatorCache, keep_file_sizes, make_canonical
from tflite2onnx.emit import Emitted, emit
from tflite2onnx.errors import (
    ConversionError,
    FixedSizeError,
    InternalError,
    ModelFileError,
    OptionError,
    UnsupportedOperators,
)
from tflite2onnx.graph import Graph, Model, Signature
from tflite2onnx.interface import order_endpoints, pin_orders
from tflite2onnx.layout import Plan, plan
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions, name_preset
from tflite2onnx.passes import (
    MODEL_PASSES,
    apply_passes,
    describe_bug,
    find_pass,
    list_entry_point_passes,
    raise_unrolled_layers,
)
from tflite2onnx.passes.dynamic_shapes import (
    OpenGraph,
    check_dynamic_axes,
    name_dynamic_axes,
    report_fixed_axes,
)
from tflite2onnx.passes.fold_constants import count_stored_bytes
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.resize_inputs import report_unknown_ranks, resize_inputs
from tflite2onnx.planning import Planner, Planning, plan_graph
from tflite2onnx.reader.metadata import describe_face_detector, describe_model, list_packed_files
from tflite2onnx.reader.source import AnySource
from tflite2onnx.result import Result, make_result
from tflite2onnx.signatures import (
    choose_cache_layouts,
    find_signature,
    has_caches,
    list_signature_io,
    name_tensors,
    rename_as_requested,
    rename_endpoints,
    warn_missing_endpoints,
)
from tflite2onnx.targets.driver import (
    apply_forms,
    find_inner_states,
    find_state_orders,
    list_node_passes,
)
from tflite2onnx.targets.table import find_options, find_rules
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.console import count
from tflite2onnx.utils.constant_budget import ConstantBudget
from tflite2onnx.utils.mapped_files import release_memory
from tflite2onnx.validity import check

if TYPE_CHECKING:
    from tflite2onnx.float16 import Float32Node

_DEFAULT = ConversionOptions()
# Options that say how quantized tensors are stored.
_STORAGE = ("quantization", "activations", "weights", "dynamic_range")
OUT_OF_MEMORY = "the model needs more memory than is available"

_logger = logging.getLogger(__name__)


@contextmanager
def prepare_process() -> Iterator[None]:
    """Switch off the cyclic garbage collector and floating-point warnings during a conversion.

    A conversion makes no reference cycles. The collector would walk over all objects repeatedly and
    take a third of the time. The parameters of a model may be infinite.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        if enabled:
            gc.enable()


@prepare_process()
def convert_read_model(
    read: Callable[[], Model], origin: AnySource, options: ConversionOptions
) -> Result:
    """Convert a model that a function reads from `origin`.

    The operators of the file are released once the passes have rewritten them.

    Raises:
        ConversionError: the model cannot be converted; the message gives the reason.
        InternalError: there is a bug in a pass, or elsewhere.
    """
    try:
        result = _convert_opened(_open_source(read(), origin, options), plan)
        if options.states != "auto" and not result.states:
            _warn_without_effect("states", "the model keeps no state")
        if find_rules(options.target):
            _warn_of_broken_rules(result, options.target)
    except MemoryError as error:
        raise ModelFileError(OUT_OF_MEMORY) from error
    except ConversionError:
        raise
    except Exception as error:  # a bug may raise any exception: the message names the pass
        raise InternalError(describe_bug(error)) from error
    return result


def _open_source(source: Model, origin: AnySource, options: ConversionOptions) -> _Opened:
    index, _ = find_signature(source, options.signature)
    if options.inputs is None and options.outputs is None:
        warn_missing_endpoints(source, index)
    if options.inputs is None:
        shapes = name_tensors(options, source, index).shapes
        report_unknown_ranks([t for t in source.graphs[index].inputs if t.name not in shapes])
    opened = _open_model(source, options, read_notes(source, origin, options))
    _warn_without_quantization(source, options)
    if options.caches == "shared" and not has_caches(source):
        _warn_without_effect("caches", "no signature has a cache of a language model")
    return opened


def _warn_without_quantization(source: Model, options: ConversionOptions) -> None:
    """Warn of options for quantized tensors if the model has none; floats are floats already."""
    given = [name for name in _STORAGE if getattr(options, name) != getattr(_DEFAULT, name)]
    asked = [name for name in given if getattr(options, name) != "float"]
    if asked and all(t.quantization is None for graph in source.graphs for t in graph.tensors):
        for name in asked:
            _warn_without_effect(name, "the model has no quantized tensors")


def _warn_without_effect(option: str, reason: str) -> None:
    _logger.warning("`%s` has no effect, because %s", option, reason)


def _warn_of_broken_rules(result: Result, target: str) -> None:
    """Warn of what will happen, because the model breaks rules in spite of the target's options."""
    from tflite2onnx.targets.checker import check_model  # noqa: PLC0415 - few conversions need it

    broken = check_model(result.skeleton.proto, target, result.skeleton.weights)
    numbers = Counter(each.consequence for each in broken)
    first = {each.consequence: each for each in reversed(broken)}
    for consequence, number in numbers.items():
        message = "%s of the target %s: %s (tflite2onnx check lists all)"
        _logger.warning(message, count(number, "broken rule"), target, first[consequence])


@prepare_process()
def convert_model(
    model: Model,
    options: ConversionOptions = _DEFAULT,
    *,
    notes: Mapping[str, object] | None = None,
    planner: Planner = plan,
) -> Result:
    """Convert a model that is already read; `planner` chooses the orders of all tensors.

    `notes` are added to the metadata of the ONNX model (see `metadata.describe_model`).

    Raises:
        ConversionError: the model cannot be converted; the message gives the reason.
    """
    return _convert_opened(_open_model(model, options, notes), planner)


@dataclass
class _Opened:
    """A graph before its sizes are named, and what is left of the model: it has no operators."""

    graph: Graph | None
    words: Mapping[str, str]
    operator_of: OperatorCache
    options: ConversionOptions
    model: Model
    place: int
    signature: Signature | None
    properties: Mapping[str, object]

    def take_graph(self) -> Graph:
        """Return the graph and forget it: its operators take memory until they are rewritten."""
        graph, self.graph = self.graph, None
        if graph is None:
            raise InternalError("a graph must be taken once")
        return graph


def _open_model(
    model: Model, options: ConversionOptions, notes: Mapping[str, object] | None
) -> _Opened:
    """Return the graph of the entry point, with the wanted sizes and types of inputs."""
    options = options.with_target()
    given = options.list_given()
    if options.lengths == "joined":
        raise OptionError("`lengths` must be auto or each for one signature, got joined")
    index, signature = find_signature(model, options.signature)
    options = name_tensors(options, model, index)
    options = choose_cache_layouts(options, model, signature)
    whole = model.graphs[index]
    is_cut = options.inputs is not None or options.outputs is not None
    if is_cut:
        from tflite2onnx.passes.cut_graph import cut_model  # noqa: PLC0415 - rare

        model = cut_model(model, index, options.inputs, options.outputs)
    model = apply_passes(MODEL_PASSES, model)
    graph = inline_subgraphs(model, index)
    graph, words = _resize_inputs(graph, options)
    operator_of = OperatorCache(options)
    graph = apply_passes(list_entry_point_passes(model, index, operator_of.read_op), graph)
    if options.quantization == "symmetric":
        graph = find_pass("stored_numbers.make_symmetric")(graph)
    if options.batch is not None:
        from tflite2onnx.passes.batch.resize_batch import resize_batch  # noqa: PLC0415 - rare

        if not str(options.batch).isdecimal():
            # Which rows are an item of a sequence is known for one sample, not for any number.
            graph = raise_unrolled_layers(graph)
        graph, words = resize_batch(graph, options.batch, operator_of.read_op, words)
    if not graph.outputs:
        raise ModelFileError("the model must have an output, got none")
    properties: dict[str, object] = {"metadata": notes, "options": given}
    if is_cut:
        properties |= _describe_cut(whole, model.graphs[index], notes or {})
    if not (options.preprocess or options.postprocess):  # Pictures are read by their operators.
        model = model._replace(
            graphs=tuple(replace(each, ops=(), tensors=()) for each in model.graphs)
        )
    return _Opened(graph, words, operator_of, options, model, index, signature, properties)


def _convert_opened(opened: _Opened, planner: Planner) -> Result:
    """Convert the graph of an entry point, and assemble the ONNX model."""
    options, model, signature = opened.options, opened.model, opened.signature
    file_graph = model.graphs[opened.place]
    emitted = _emit_opened(opened, planner)
    opened.operator_of.clear()  # the operators take memory that the assembly of the model needs
    float32_nodes: tuple[Float32Node, ...] = ()
    if options.float16:
        from tflite2onnx.float16 import to_float16  # noqa: PLC0415 - rare

        emitted, float32_nodes = to_float16(emitted, io=options.float16_io)
        if "float16" not in check(emitted, file_graph).values():
            _warn_without_effect("float16", "every node computes integers, or stays in float32")
    if options.names == "signature":
        emitted = rename_endpoints(emitted, file_graph, signature)
    pictures = options.preprocess or options.postprocess
    emitted = emitted if pictures else rename_as_requested(emitted, options.rename, signature)
    properties = {
        "signatures": list_signature_io(model, opened.place, emitted),
        "metadata": None,
        **opened.properties,
    }
    assemble = partial(
        make_result,
        name=file_graph.name or "main",
        float32_nodes=float32_nodes,
        required_states=options.states == "required",
    )
    if pictures:
        return _assemble_with_pictures(emitted, file_graph, options, properties, assemble)
    return assemble(emitted, metadata=properties)


def _assemble_with_pictures(
    emitted: Emitted,
    graph: Graph,
    options: ConversionOptions,
    properties: Mapping[str, Any],
    assemble: Callable[..., Result],
) -> Result:
    """Return the model with its preprocessing and postprocessing."""
    from tflite2onnx.pictures.attach import (  # noqa: PLC0415 - slow to import
        assemble_parts,
        attach_pictures,
    )

    notes = properties["metadata"] or {}
    attached = attach_pictures(emitted, options.preprocess, options.postprocess, graph, notes)
    check(attached.whole, graph)
    renamed = rename_as_requested(attached.whole, options.rename)
    return assemble_parts(attached._replace(whole=renamed), properties, assemble)


def _describe_cut(whole: Graph, part: Graph, notes: Mapping[str, Any]) -> dict[str, object]:
    """Return the inputs and outputs of a part of a graph, and the metadata `notes` for the part.

    The metadata list the inputs and the outputs of the whole graph in sequence.
    """
    names, changed = {}, dict(notes)
    for key in ("inputs", "outputs"):
        old, new = getattr(whole, key), getattr(part, key)
        names[key] = [tensor.name for tensor in new if not tensor.is_variable]
        notes_of = dict(zip(old, notes.get(key, ()), strict=False))
        changed[key] = [notes_of.get(tensor, {}) for tensor in new]
    facts = {key: value for key, value in changed.items() if key in notes}
    return {"cut": names, "metadata": facts}


def _resize_inputs(graph: Graph, options: ConversionOptions) -> tuple[Graph, dict[str, str]]:
    """Return a graph with the wanted sizes and types of inputs, and the names of sizes."""
    shapes: Mapping[str, Sequence[int | str]] = options.shapes
    if options.batch is not None:
        from tflite2onnx.passes.batch.resize_batch import list_sample_sizes  # noqa: PLC0415 - rare

        shapes = list_sample_sizes(graph, shapes, options.batch)
    graph, words = resize_inputs(graph, shapes)
    if options.io_type is not None:
        from tflite2onnx.passes.stored_numbers.change_io_types import change_io_types  # noqa: PLC0415 - rare

        graph = change_io_types(graph, options.io_type)
    return graph, words


def _emit_opened(opened: _Opened, planner: Planner) -> Emitted:
    """Emit a graph with the wanted dynamic sizes."""
    words, options, operator_of = opened.words, opened.options, opened.operator_of
    graph = opened.take_graph()
    if options.static and words:
        reason = "`static` must not be given with the names of dynamic sizes"
        raise OptionError(name_preset(reason, options.target, find_options(options.target)))
    if words or (not options.static and any(t.dynamic_axes for t in graph.inputs)):
        return _convert_with_dynamic_axes(graph, words, options, operator_of, planner)
    sized = [keep_file_sizes(graph, operator_of.read_op)]
    del graph
    return _emit_canonical(sized.pop(), options, operator_of, planner)


def _convert_with_dynamic_axes(
    graph: Graph,
    words: Mapping[str, str],
    options: ConversionOptions,
    operator_of: OperatorCache,
    planner: Planner,
) -> Emitted:
    """Emit a graph whose sizes are dynamic as far as all operators support that.

    `words` has the user's names of dynamic sizes. Other sizes are fixed as in the file, with a
    warning.
    """
    reasons: dict[str, str] = {}
    axes: frozenset[str]
    while True:
        try:
            opened = name_dynamic_axes(graph, operator_of.read_op, reasons, words)
            emitted = _emit_canonical(opened, options, operator_of, planner)
        except (FixedSizeError, UnsupportedOperators) as error:
            axes = getattr(error, "axes", frozenset()) - reasons.keys()
            # An error has references to all intermediate results, and would keep them in memory.
            problems = getattr(error, "problems", ())
            reason = str(problems[0] if problems else error)
        else:
            converted = [port.tensor for port in emitted.inputs]
            report_fixed_axes(reasons, graph.inputs, converted)
            return emitted
        if words and (not axes or axes & words.keys()):
            first = min(axes & words.keys(), default=min(words))
            raise OptionError(f"the size {words[first]} cannot be dynamic because {reason}")
        if not axes:
            break
        reasons |= dict.fromkeys(sorted(axes), reason)
    # If the error does not depend on sizes, it is raised again here.
    try:
        opened = keep_file_sizes(graph, operator_of.read_op)
        emitted = _emit_canonical(opened, options, operator_of, planner)
    except ConversionError as error:
        # A size of the file may be the cause, so that the reasons say what to do.
        for axis, why in reasons.items():
            _logger.warning("axis %s is fixed as in the file because %s", axis, why)
        hint = _suggest_sizes(graph.inputs)
        if hint and isinstance(error, UnsupportedOperators):
            raise UnsupportedOperators(error.problems, hint) from error
        raise
    _logger.warning("all sizes are fixed as in the file because %s", reason)
    return emitted


def _suggest_sizes(inputs: Iterable[Tensor]) -> str:
    """Return a hint at the size of an axis which is 1 in the file because it is dynamic, else "".

    The first of several axes is the batch, of which 1 is a likely size.
    """
    for t in inputs:
        unknown = [i for i in t.dynamic_axes if t.shape[i] == 1 and (i or t.rank == 1)]
        if unknown:
            sizes = ",".join("N" if i in unknown else str(n) for i, n in enumerate(t.shape))
            option = f"--shape {t.name}={sizes}"
            return f"the file has the size 1 for a dynamic axis of {t.name}: give {option}"
    return ""


def _emit_canonical(
    opened: OpenGraph, options: ConversionOptions, operator_of: OperatorCache, planner: Planner
) -> Emitted:
    """Make a graph canonical, plan and emit it, some of whose sizes may be dynamic."""
    graph, axes = opened
    del opened  # each stage releases the operators of the stage before
    _logger.debug("read %d operators, %d tensors", len(graph.ops), len(graph.tensors))
    graph, user_orders, letters = make_canonical(graph, options, operator_of.read_op)
    _logger.debug("canonical: %d operators", len(graph.ops))
    fixed_orders = user_orders or find_state_orders(graph, options)
    planning = Planning(operator_of, planner, fixed_orders, options.io_layout, {})
    planned = apply_forms(plan_graph(pin_orders(graph, user_orders), planning), options)
    graph = planned.without_plan()
    _logger.debug("chose forms of %d operators", len(graph.ops))
    constants = (t.data for op in graph.walk_ops() for t in op.present)
    release_memory(*(data for data in constants if data is not None))  # passes have read them
    operators, interface, operator_sites, orders = planned.planned
    del planned
    operator_of.keep_only(graph.walk_ops())
    check_dynamic_axes(operators, axes)
    orders = order_endpoints(interface, orders)
    _logger.debug("planned %d bytes to transpose", orders.bytes_moved)
    if letters:
        check_letters(letters, name_axes(operator_sites, {}), user_orders)
    letters = name_axes(operator_sites, letters)
    del operator_sites, interface
    emitted = _emit_with_opset(graph, operators, orders, options).with_letters(letters)
    _logger.debug("emitted %d nodes of opset %d", len(emitted.nodes), emitted.opset)
    return emitted


def _emit_with_opset(
    graph: Graph, operators: Sequence[Operator], orders: Plan, options: ConversionOptions
) -> Emitted:
    """Emit for the requested opset, or by default for the smallest opset that has all nodes."""
    storage = quantize.plan(operators, options, find_inner_states(graph, options))
    is_fixed = options.opset is not None
    passes = list_node_passes(options)
    version, size = options.opset or DEFAULT_OPSET, count_stored_bytes(graph)
    while True:
        try:
            budget = ConstantBudget(size)
            g = Builder(version, opset_is_fixed=is_fixed, plan=storage, budget=budget)
            emitted = emit(graph, operators, orders, g, passes)
            check(emitted, graph)
        except NeedsOpset as need:
            if is_fixed:
                other = f"got {options.opset}: choose another `opset`, or another `target`"
                raise OptionError(f"{need}, {other}") from need
            version = need.version
        else:
            return emitted


def read_notes(source: Model, model: AnySource, options: ConversionOptions) -> dict[str, Any]:
    """Return the metadata that describe the model; damaged metadata give a warning only."""
    try:
        notes = describe_model(source, model)
        if options.preprocess or options.postprocess:
            from tflite2onnx.pictures.yolo import read_ultralytics  # noqa: PLC0415 - slow

            notes["ultralytics"] = read_ultralytics(list_packed_files(model))
            notes["face_detector"] = describe_face_detector(source)
    except ModelFileError as error:
        _logger.warning("%s", error)
        return {}
    return notes
