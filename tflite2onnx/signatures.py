"""Signatures: the entry points of a model; each names the inputs and outputs of a sub-graph."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tflite2onnx.builder.builder import Port
from tflite2onnx.emit import Emitted
from tflite2onnx.errors import OptionError
from tflite2onnx.graph import ABSENT, Graph, Model, Signature
from tflite2onnx.layout import axis_names
from tflite2onnx.options import ConversionOptions
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.suggestions import join_alternatives, suggest_names
from tflite2onnx.utils.unique_names import Names

T = TypeVar("T")

_NAMED = 8  # signatures that a warning names

_logger = logging.getLogger(__name__)

CACHE = re.compile(r"kv_cache_([kv])_(\d+)")  # the cache of the keys or of the values of a layer
STATE = re.compile(r"kv_cache_([cr])_(\d+)")  # the state of a convolution or a recurrence
_ANY_CACHE = re.compile(r"kv_cache_[a-z]+_\d+")
_CACHE_AXES = 4
# Caches as [batch, heads, tokens, depth], by the axis of the tokens in the file.
_HEADS_FIRST = {1: ("0123", "0213"), 2: ("0123", "0123"), 3: ("0123", "0132")}


def find_signature(model: Model, key: str | None) -> tuple[int, Signature | None]:
    """Return the index of the sub-graph to convert, and its signature if it has one.

    `key` is the name of a signature; None means the main sub-graph.

    Raises:
        OptionError: the model has no signature of this name.
    """
    if key is None:
        return 0, next((s for s in model.signatures if s.subgraph == 0), None)
    for signature in model.signatures:
        if signature.key == key:
            return signature.subgraph, signature
    if not model.signatures:
        raise OptionError(f"`signature` must not be given, because the model has none, got {key}")
    keys = [s.key for s in model.signatures]
    hint = suggest_names(key, keys)
    raise OptionError(f"`signature` must be {join_alternatives(keys)}, got {key}{hint}")


def name_tensors(options: ConversionOptions, model: Model, index: int) -> ConversionOptions:
    """Return the options with the names of tensors in place of other names that users may give.

    An input or output has its name in the graph, its name in a signature of the sub-graph, and the
    name that `rename` gives it. If two tensors have one name, the name in the graph comes first.

    Raises:
        OptionError: a tensor is given twice, by two of its names.
    """
    inner = {tensor.name for tensor in model.graphs[index].tensors}
    signatures = [entry for entry in model.signatures if entry.subgraph == index]
    outputs: dict[str, str] = {}
    for entry in signatures:
        outputs |= {name: t.name for name, t in entry.outputs.items()}
    inputs = outputs | {name: t.name for entry in signatures for name, t in entry.inputs.items()}
    for aliases in (outputs, inputs):
        aliases |= {new: aliases.get(old, old) for old, new in options.rename.items()}
        aliases |= {name: name for name in inner}

    def find_keys(option: str, values: Mapping[str, T]) -> dict[str, T]:
        named = {inputs.get(name, name): value for name, value in values.items()}
        if len(named) < len(values):
            raise OptionError(
                f"`{option}` must be given once for each tensor, got {' and '.join(values)}"
            )
        return named

    values = (options.layouts, options.shapes, options.io_type, options.inputs, options.outputs)
    if not any(values) or not isinstance(options.layouts, Mapping):
        return options
    io_type = options.io_type
    return replace(
        options,
        layouts=find_keys("layouts", options.layouts),
        shapes=find_keys("shapes", options.shapes),
        io_type=find_keys("io_type", io_type) if isinstance(io_type, Mapping) else io_type,
        inputs=options.inputs and [inputs.get(name, name) for name in options.inputs],
        outputs=options.outputs and [outputs.get(name, name) for name in options.outputs],
    )


def has_caches(model: Model) -> bool:
    """Return whether a signature has an input that is the cache of a language model."""
    return any(_ANY_CACHE.fullmatch(name) for entry in model.signatures for name in entry.inputs)


def choose_cache_layouts(
    options: ConversionOptions, model: Model, signature: Signature | None
) -> ConversionOptions:
    """Return the options with layouts of caches; layouts that the user gives are kept.

    A program gives the caches that one signature returns to another, so all signatures must have
    the same layouts: those of the file, or of `move_heads_first`.
    """
    if options.caches == "shared":
        options = move_heads_first(options, model, signature)
    if options.io_layout != "auto" or options.inputs is not None or signature is None:
        return options
    layouts: dict[str, Sequence[str]] = {}
    for name, cache in signature.inputs.items():
        after = signature.outputs.get(name, ABSENT)
        if _ANY_CACHE.fullmatch(name) and after.shape == cache.shape:
            axes = "".join(axis_names(cache.rank))
            layouts |= dict.fromkeys((cache.name, after.name), (axes, axes))
    if not layouts or layouts.keys() & options.layouts.keys():
        return options
    return replace(options, layouts={**layouts, **options.layouts})


def move_heads_first(
    options: ConversionOptions, model: Model, signature: Signature | None
) -> ConversionOptions:
    """Return the options with layouts of caches in which the tokens of a head are neighbours.

    Attention reads heads one by one. All signatures of a model get the same layouts. Layouts that
    the user gives are kept. No layout is added if `io_layout` or a part of the model is chosen.
    """
    is_set = options.io_layout != "auto" or options.batch is not None or options.inputs is not None
    if options.forms != "fastest" or is_set or options.outputs is not None or signature is None:
        return options
    if any("mask" in name for name in signature.inputs):
        return options
    axes: dict[str, int] = {}
    for entry in model.signatures:
        found = find_updated_axes(model.graphs[entry.subgraph])
        axes |= {name: found[cache] for name, cache in entry.inputs.items() if cache in found}
    layouts: dict[str, Sequence[str]] = {}
    for name, cache in signature.inputs.items():
        tensor = signature.outputs.get(name, ABSENT)
        is_cache = CACHE.fullmatch(name) and cache.rank == _CACHE_AXES and cache.shape[0] == 1
        names, layout = {cache.name, tensor.name}, _HEADS_FIRST.get(axes.get(name, 1))
        if is_cache and layout and tensor.shape == cache.shape and cache.dtype is DType.FLOAT32:
            layouts |= {} if names & options.layouts.keys() else dict.fromkeys(names, layout)
    return replace(options, layouts={**layouts, **options.layouts})


def find_updated_axes(graph: Graph) -> Mapping[Tensor, int]:
    """Return the only axis along which a graph updates a part of an input, by the inputs."""
    axes: dict[Tensor, int] = {}
    for op in graph.ops:
        if op.is_builtin("DYNAMIC_UPDATE_SLICE") and op.operand(0) in graph.inputs:
            sizes = zip(op.operand(0).shape, op.operand(1).shape, strict=False)
            found = [axis for axis, (whole, part) in enumerate(sizes) if whole != part]
            axes |= {op.operand(0): found[0]} if len(found) == 1 else {}
    return axes


def warn_unconverted(model: Model, key: str | None) -> None:
    """Warn about the signatures that are not converted if none is requested."""
    _, entry = find_signature(model, key)
    if key is None and any(s.subgraph != 0 for s in model.signatures):
        subject = f"only {entry.key} is" if entry else "no signature is"
        keys = [signature.key for signature in model.signatures]
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        _logger.warning(
            "the model has the signatures %s%s; %s converted: choose one with `signature`",
            ", ".join(keys[:_NAMED]),
            more,
            subject,
        )


def warn_missing_endpoints(model: Model, index: int) -> None:
    """Warn about names in signatures whose tensors are no inputs or outputs of the sub-graph.

    Quantizers append an operator after an output, and the signature keeps the tensor before it.
    """
    graph = model.graphs[index]
    for signature in (each for each in model.signatures if each.subgraph == index):
        for kind, names, tensors in (
            ("inputs", signature.inputs, graph.inputs),
            ("outputs", signature.outputs, graph.outputs),
        ):
            for name, tensor in names.items():
                if tensor not in tensors:
                    _logger.warning(
                        "%s of the signature %s is not among the %s of the model: it is the tensor"
                        " %s, which --%s chooses",
                        name,
                        signature.key,
                        kind,
                        tensor.name,
                        kind,
                    )


def rename_endpoints(emitted: Emitted, graph: Graph, signature: Signature | None) -> Emitted:
    """Return the ONNX graph with a signature's names for its inputs and outputs.

    `graph` is the sub-graph in the file. An input or output that the signature does not name keeps
    its name. If names are equal, the later names get numbers; the sequence is inputs, outputs,
    states.

    Raises:
        OptionError: the model has no signature.
    """
    if signature is None:
        raise OptionError("`names` must be tensor, because the model has no signature")
    inputs, outputs = len(graph.inputs), len(graph.outputs)
    endpoints = inputs + outputs
    preferred = [
        *_list_tensor_names(graph.inputs, signature.inputs),
        *_list_tensor_names(graph.outputs, signature.outputs),
        *(port.name for port in (*emitted.inputs[inputs:], *emitted.outputs[outputs:])),
    ]
    names = list(map(Names().make_unique, preferred))
    next_states = endpoints + len(emitted.initial)
    return emitted._replace(
        inputs=_rename_ports(emitted.inputs, [*names[:inputs], *names[endpoints:next_states]]),
        outputs=_rename_ports(emitted.outputs, [*names[inputs:endpoints], *names[next_states:]]),
    )


def list_signature_io(
    model: Model, index: int, emitted: Emitted
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the ONNX names of inputs and outputs by their names in each signature of a sub-graph.

    The shape is {signature: {"inputs": {name: ONNX name}, "outputs": {name: ONNX name}}}. A name
    whose tensor is no input or output of the model is left out, see `warn_missing_endpoints`.
    """
    graph = model.graphs[index]

    def list_names(
        names: Mapping[str, Tensor], tensors: Sequence[Tensor], ports: Sequence[Port]
    ) -> dict[str, str]:
        onnx_names = {t: p.name for t, p in reversed([*zip(tensors, ports, strict=False)])}
        return {name: onnx_names[t] for name, t in names.items() if t in onnx_names}

    return {
        s.key: {
            "inputs": list_names(s.inputs, graph.inputs, emitted.inputs),
            "outputs": list_names(s.outputs, graph.outputs, emitted.outputs),
        }
        for s in model.signatures
        if s.subgraph == index
    }


def _list_tensor_names(tensors: Sequence[Tensor], names: Mapping[str, Tensor]) -> list[str]:
    """Return the names of tensors; a tensor that occurs twice may have two names."""
    unused: dict[Tensor, list[str]] = {}
    for name, tensor in names.items():
        unused.setdefault(tensor, []).append(name)
    return [unused[t].pop(0) if unused.get(t) else t.name for t in tensors]


def rename_as_requested(
    emitted: Emitted, names: Mapping[str, str], signature: Signature | None = None
) -> Emitted:
    """Return the ONNX graph with other names for its inputs, outputs and states: {old: new}.

    An old name may also be the name of the tensor, or the name in the signature.

    Raises:
        OptionError: no input or output has an old name, or two would have the same name.
    """
    ports = (*emitted.inputs, *emitted.outputs)
    names_now = [port.name for port in ports]
    aliases = {port.tensor.name: port.name for port in reversed(ports)}
    for called in (signature.outputs, signature.inputs) if signature else ():
        aliases |= {key: aliases.get(tensor.name, key) for key, tensor in called.items()}
    aliases |= {name: name for name in names_now}
    for old in names:
        if old not in aliases:
            hint = suggest_names(old, names_now, most=3, few=4)
            if "=" in old:
                hint = "; give each OLD=NEW with an option of its own"
            raise OptionError(f"`rename`: the model has no input or output {old}{hint}")
    new = {aliases[old]: name for old, name in names.items()}
    new_names = [new.get(name, name) for name in names_now]
    twice = next((name for name in new_names if new_names.count(name) > 1), None)
    if twice is not None:
        raise OptionError(f"`rename`: two inputs or outputs would be named {twice}")
    inputs = len(emitted.inputs)
    return emitted._replace(
        inputs=_rename_ports(emitted.inputs, new_names[:inputs]),
        outputs=_rename_ports(emitted.outputs, new_names[inputs:]),
    )


def _rename_ports(ports: Sequence[Port], names: Sequence[str]) -> tuple[Port, ...]:
    return tuple(p._replace(name=name) for p, name in zip(ports, names, strict=True))
