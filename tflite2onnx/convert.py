"""The conversion: read, normalise, plan, emit, write."""

from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import onnx

from tflite2onnx.ancestor import with_old_names
from tflite2onnx.builder import Builder, Port, every_node
from tflite2onnx.complex import paired
from tflite2onnx.emit import Emitted, emit, prefers_uint8, sites
from tflite2onnx.errors import (
    FixedSizeError,
    ModelFileError,
    OptionError,
    OutputError,
    UnsupportedOperators,
)
from tflite2onnx.flex import translated
from tflite2onnx.graph import Graph, Model
from tflite2onnx.inline import inlined
from tflite2onnx.interface import (
    IO_LAYOUTS,
    Endpoint,
    State,
    endpoint,
    interface,
    pin,
    read_layouts,
)
from tflite2onnx.layout import Plan, Site, plan
from tflite2onnx.lists import set_items
from tflite2onnx.metadata import described
from tflite2onnx.nodes import DEFAULT_OPSET, MIN_OPSET, NeedsOpset
from tflite2onnx.normalise import drop_dead, normalise
from tflite2onnx.op import has_converter, operator_for, rules_for, shapes_for
from tflite2onnx.reader import read
from tflite2onnx.regions import with_computations
from tflite2onnx.shapes import shaped
from tflite2onnx.signatures import NAMES, entry, renamed, told, warn
from tflite2onnx.sizes import check_open, opened, settled
from tflite2onnx.state import explicit
from tflite2onnx.stateful import STATES
from tflite2onnx.tables import with_tables
from tflite2onnx.version import VERSION
from tflite2onnx.writer import Skeleton, assemble, write

QUANTIZATIONS = ("qdq", "float")
ACTIVATIONS = ("auto", "int8", "uint8")
Planner = Callable[[Sequence[Site]], Plan]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Result:
    """What came out: the model, its interface, and what the plan cost.

    `states` are the further inputs and outputs of a model that remembers something from one run to
    the next. `transposes` counts the Transpose nodes and `bytes_moved` what they write in one run;
    `size` is the bytes of the model, weights included.
    """

    inputs: tuple[Endpoint, ...]
    outputs: tuple[Endpoint, ...]
    opset: int
    nodes: int
    transposes: int
    bytes_moved: int
    size: int
    skeleton: Skeleton
    states: tuple[State, ...] = ()

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The ONNX model with all its weights."""
        return self.skeleton.model()

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the model to a file, which appears when it is whole; return its bytes.

        Above 2 GB the weights go to a second file beside it, whose name ends in .onnx.data.

        Raises:
            OutputError: the place cannot be written to.
        """
        written = write(self.skeleton, path)
        _logger.debug("wrote %s: %d bytes", os.fspath(path), written)
        return written


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

    Raises:
        ConversionError: the model cannot be converted; the message says why.
    """
    _check(io_layout, opset)
    _check_words(quantization=quantization, activations=activations, names=names)
    if output is not None and not isinstance(model, bytes):
        keep_apart(model, output)
    try:
        source = read(model)
        warn(source, signature)
        result = convert_model(
            source, layouts, io_layout=io_layout, opset=opset,
            quantization=quantization, activations=activations, allow_custom=allow_custom,
            static=static, signature=signature, names=names, notes=_notes(source, model),
        )  # fmt: skip
        if output is not None:
            result.save(output)
    except MemoryError as error:
        message = "the model takes more memory than there is"
        raise ModelFileError(message) from error
    return result


def convert_model(  # noqa: PLR0913 - options, all of them keywords
    model: Model,
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
    notes: Mapping[str, object] | None = None,
    planner: Planner = plan,
) -> Result:
    """Convert a model that is already read; `planner` chooses the orders of all tensors.

    `notes` go into the metadata of the ONNX model (see `metadata.described`).
    """
    model = with_tables(with_computations(translated(model, has_converter)))
    index, _ = entry(model, signature)
    graph = shaped(inlined(model, index), shapes_for)
    graph = settled(paired(explicit(model, graph, rules_for, index)), operator_for)
    graph = drop_dead(set_items(graph))  # or else the sizes of what it cuts would be open
    if not graph.outputs:
        message = "the model has no output: there is nothing to convert"
        raise ModelFileError(message)
    wishes = _Wishes(
        {} if layouts is None else layouts, io_layout, opset, quantization, activations,
        allow_custom, signature, names, notes or {}, planner,
    )  # fmt: skip
    if static:
        return _converted(model, _as_filed(graph, wishes), wishes)
    try:
        return _converted(model, opened(graph, operator_for), wishes)
    except (FixedSizeError, UnsupportedOperators) as error:
        # What is wrong at any size is wrong here too.
        result = _converted(model, _as_filed(graph, wishes), wishes)
        _logger.warning("all sizes are fixed as they are in the file, since %s", error)
        return result


class _Wishes(NamedTuple):
    """The options of a conversion, see `convert`."""

    layouts: Mapping[str, Sequence[str]]
    io_layout: str
    opset: int | None
    quantization: str
    activations: str
    allow_custom: bool
    signature: str | None
    names: str
    notes: Mapping[str, object]
    planner: Planner


def _as_filed(graph: Graph, wishes: _Wishes) -> Graph:
    """Return a graph of which only the sizes stay open that nobody foresees."""
    try:
        return opened(graph, operator_for, inputs=False)
    except FixedSizeError:
        # It may be due to one operator of many that cannot be converted: all are named.
        ops = normalise(graph, rules_for).every_op()
        sites([operator_for(op, keep=wishes.allow_custom) for op in ops])
        raise


def _converted(model: Model, graph: Graph, wishes: _Wishes) -> Result:
    """Convert a graph, of whose sizes some may stay open."""
    asked = read_layouts(wishes.layouts, graph)
    _logger.debug("read %d operators, %d tensors", len(graph.ops), len(graph.tensors))
    normal = normalise(graph, rules_for)
    # An output that is found to be constant is another tensor now.
    now = dict(zip(graph.outputs, normal.outputs, strict=True))
    wanted = {now.get(tensor, tensor): order for tensor, order in asked.items()}
    graph = pin(normal, wanted)
    _logger.debug("normalised to %d operators", len(graph.ops))
    operators = [operator_for(op, keep=wishes.allow_custom) for op in graph.every_op()]
    inside = sites(operators)
    check_open([(operator.op, operator) for operator in operators])
    chosen = wishes.planner([interface(graph, wanted, wishes.io_layout), *inside])
    _logger.debug("planned %d bytes to be moved", chosen.bytes_moved)
    auto = wishes.activations == "auto"
    builder = partial(
        Builder, fixed=wishes.opset is not None, plain=wishes.quantization == "float",
        unsigned=wishes.activations == "uint8" or (auto and prefers_uint8(operators)),
    )  # fmt: skip
    emitted = _emit(lambda version: emit(graph, operators, chosen, builder(version)), wishes.opset)
    _logger.debug("emitted %d nodes of opset %d", len(emitted.nodes), emitted.opset)
    index, signature = entry(model, wishes.signature)
    if wishes.names == "signature":
        emitted = renamed(emitted, model.graphs[index], signature)
    more = {"signatures": told(model, index, emitted), "metadata": wishes.notes}
    return _result(emitted, graph.name or "main", more)


def _notes(source: Model, model: str | os.PathLike[str] | bytes) -> dict[str, object]:
    """Return what the model's authors say of it; that it is damaged is no reason not to convert."""
    try:
        return described(source, model)
    except ModelFileError as error:
        _logger.warning("%s", error)
        return {}


def keep_apart(model: str | os.PathLike[str], output: str | os.PathLike[str]) -> None:
    """Raise OutputError if the output is the model itself."""
    try:
        same = os.path.samefile(model, output)  # noqa: PTH121 - paths may be any os.PathLike
    except (OSError, ValueError):  # one of them is not there; said when it is read or written
        return
    if same:
        message = f"cannot write {os.fspath(output)}: it is the TFLite model itself"
        raise OutputError(message)


def _check(io_layout: str, opset: int | None) -> None:
    if io_layout not in IO_LAYOUTS:
        message = f"io_layout is {io_layout!r}; it can be {', '.join(IO_LAYOUTS)}"
        raise OptionError(message)
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not (isinstance(opset, int) and MIN_OPSET <= opset <= newest):
        message = f"opset {opset!r} is not supported: it can be {MIN_OPSET} to {newest}"
        raise OptionError(message)


def _check_words(**options: str) -> None:
    known = {"quantization": QUANTIZATIONS, "activations": ACTIVATIONS, "names": NAMES}
    for name, value in options.items():
        if value not in known[name]:
            message = f"{name} is {value!r}; it can be {', '.join(known[name])}"
            raise OptionError(message)


def _emit(emitted: Callable[[int], Emitted], opset: int | None) -> Emitted:
    """Emit for the opset asked for, else for the smallest that has all nodes."""
    version = opset or DEFAULT_OPSET
    while True:
        try:
            return emitted(version)
        except NeedsOpset as need:
            if opset is not None:
                raise OptionError(str(need)) from need
            version = need.version


def _result(emitted: Emitted, name: str, more: Mapping[str, object]) -> Result:
    inputs, taken = _ends(emitted.inputs, len(emitted.initial))
    outputs, given = _ends(emitted.outputs, len(emitted.initial))
    states = tuple(map(State, taken, given, emitted.initial))
    properties = _properties(inputs, outputs, states)
    properties |= {f"tflite2onnx.{key}": json.dumps(value) for key, value in more.items() if value}
    skeleton = assemble(name, emitted, properties, VERSION)
    count, moved = skeleton.transposes
    nodes = sum(1 for _ in every_node(emitted.nodes))
    return Result(
        inputs, outputs, emitted.opset, nodes, count, moved, skeleton.size, skeleton, states
    )


def _ends(ports: Sequence[Port], states: int) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return the model's own inputs or outputs, and those that are states."""
    ends = tuple(endpoint(p.tensor, p.order, p.name, p.dtype) for p in ports)
    return ends[: len(ends) - states], ends[len(ends) - states :]


def _properties(
    inputs: Sequence[Endpoint], outputs: Sequence[Endpoint], states: Sequence[State]
) -> dict[str, str]:
    """Return what the metadata of the ONNX model say of its interface."""
    props = {
        "tflite2onnx.inputs": json.dumps([_described(e) for e in inputs]),
        "tflite2onnx.outputs": json.dumps([_described(e) for e in outputs]),
    }
    if states:
        described = [_described(s.input) | {"output": s.output.name} for s in states]
        props[STATES] = json.dumps(described)
    return props


def _described(end: Endpoint) -> dict[str, object]:
    tflite_layout, onnx_layout = end.layout
    return {
        "name": end.name,
        "dtype": end.dtype,
        "tflite_shape": end.tflite_shape,
        "onnx_shape": end.onnx_shape,
        **({"onnx_sizes": end.sizes} if end.symbols else {}),
        "order": end.order,
        "tflite_layout": tflite_layout,
        "onnx_layout": onnx_layout,
    }
