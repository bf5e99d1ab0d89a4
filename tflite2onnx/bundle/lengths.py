"""Signatures that differ in a length only, such as prefill_8 and prefill_32, as one graph.

The graphs of the signatures are compared operator by operator. They must have the same operators,
options and constants. Two numbers may differ: one in the shape of a RESHAPE, and one in the size of
a SLICE that ends where its input ends. In the joined graph both are -1. So the joined graph is the
graph of each signature at the signature's length, and other lengths are computed in the same way.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.canonical import OperatorCache, check_sizes, open_graph
from tflite2onnx.errors import ConversionError, OperatorError
from tflite2onnx.graph import Graph, Model, Op, Options, Signature
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes.resize_inputs import resize_inputs
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.mapped_files import digest_elements, find_address

_logger = logging.getLogger(__name__)

_KEY = re.compile(r"(.*[^_\d])_*\d+")
_SIZE = "tokens"  # the name of the dynamic length
_LENGTH = 2  # the index of the sizes among the inputs of SLICE

# The place of a number in a constant: the operator and the input, by their indices.
_Place = tuple[int, int]


class JoinedGraph(NamedTuple):
    """One graph for several signatures, and how it is converted."""

    name: str
    keys: tuple[str, ...]
    model: Model
    options: Mapping[str, Any]


def join_lengths(model: Model) -> list[JoinedGraph]:
    """Return the signatures of a model that become one graph; warn of the other signatures.

    The names of the signatures differ in the number at their end.
    """
    groups: dict[str, list[Signature]] = {}
    for signature in model.signatures:
        if match := _KEY.fullmatch(signature.key):
            groups.setdefault(match[1], []).append(signature)
    taken, joins = {signature.key for signature in model.signatures}, []
    for name, signatures in groups.items():
        if len(signatures) == 1 or name in taken:
            continue
        try:
            joins.append(_join(model, name, signatures))
        except ConversionError as error:
            keys = ", ".join(signature.key for signature in signatures)
            _logger.warning("%s are converted one by one because %s", keys, error)
    return joins


def _join(model: Model, name: str, signatures: Sequence[Signature]) -> JoinedGraph:
    """Return one graph for signatures; ConversionError if more than a length differs."""
    operator_of = OperatorCache(ConversionOptions())
    first, *others = signatures
    graphs = [open_graph(model, each.subgraph, operator_of) for each in signatures]
    whole = model.graphs[first.subgraph]
    free: dict[_Place, int] = {}
    for signature, graph in zip(others, graphs[1:], strict=True):
        _compare_endpoints(whole, first, model.graphs[signature.subgraph], signature)
        for place, entry in _find_differences(graphs[0], graph).items():
            if free.setdefault(place, entry) != entry:
                raise OperatorError(
                    "shapes must differ in one number", graphs[0].ops[place[0]].place
                )
    joint = _free_numbers(graphs[0], free)
    renewed = dict(
        zip((*whole.inputs, *whole.outputs), (*joint.inputs, *joint.outputs), strict=True)
    )
    shapes = _find_shapes(graphs)
    check_sizes(*resize_inputs(joint, shapes), operator_of)
    index = first.subgraph
    keys = tuple(signature.key for signature in signatures)
    inputs = {name: renewed[t] for name, t in first.inputs.items()}
    outputs = {name: renewed[t] for name, t in first.outputs.items()}
    joined = model._replace(
        graphs=(*model.graphs[:index], joint, *model.graphs[index + 1 :]),
        signatures=tuple(Signature(key, index, inputs, outputs) for key in keys),
    )
    called = {t.name: t.name.replace(first.key, name) for t in (*joint.inputs, *joint.outputs)}
    rename = {old: new for old, new in called.items() if new != old}
    return JoinedGraph(
        name, keys, joined, {"signature": keys[0], "shapes": shapes, "rename": rename}
    )


def _compare_endpoints(a: Graph, first: Signature, b: Graph, other: Signature) -> None:
    """Raise OperatorError unless two signatures name corresponding inputs and outputs equally."""
    called = []
    for graph, signature in ((a, first), (b, other)):
        endpoints = [*graph.inputs, *graph.outputs]
        named = (signature.inputs.items(), signature.outputs.items())
        if any(t not in endpoints for pairs in named for _, t in pairs):
            raise OperatorError(f"{signature.key} must name inputs and outputs")
        called.append([{name: endpoints.index(t) for name, t in pairs} for pairs in named])
    if called[0] != called[1]:
        raise OperatorError(f"{first.key} and {other.key} must have the same inputs and outputs")


def _find_differences(a: Graph, b: Graph) -> dict[_Place, int]:
    """Return which entries of constants differ in `b`; OperatorError if the graphs differ more."""
    if len(a.ops) != len(b.ops) or len(a.inputs) != len(b.inputs) or a.initial or b.initial:
        raise OperatorError("the signatures must have as many operators, and no states")
    for pair in zip(a.inputs, b.inputs, strict=True):
        _compare_types(*pair)
    pairs: dict[Tensor | None, Tensor | None] = {None: None}
    pairs |= zip(a.inputs, b.inputs, strict=True)
    entries: dict[_Place, int] = {}
    for index, (x, y) in enumerate(zip(a.ops, b.ops, strict=True)):
        _compare_operators(x, y)
        for i, (s, t) in enumerate(zip(x.inputs, y.inputs, strict=True)):
            if s is None or t is None or not (s.has_data and t.has_data):
                if s not in pairs or pairs[s] is not t:
                    raise OperatorError("it must read the same tensors in all signatures", x.place)
            elif not _are_equal(s, t):
                entries[index, i] = _find_entry(x, y, i)
        pairs |= zip(x.outputs, y.outputs, strict=True)
    if any(pairs.get(s) is not t for s, t in zip(a.outputs, b.outputs, strict=True)):
        raise OperatorError("the signatures must have the same outputs")
    return entries


def _compare_operators(x: Op, y: Op) -> None:
    """Raise OperatorError unless two operators are the same apart from constants and sizes."""
    pairs = zip((*x.inputs, *x.outputs), (*y.inputs, *y.outputs), strict=False)
    counts = [(len(op.inputs), len(op.outputs), len(op.graphs)) for op in (x, y)]
    kinds = [(op.code, op.custom, op.activation, _list_options(op)) for op in (x, y)]
    if kinds[0] != kinds[1] or counts[0] != counts[1] or x.graphs:
        raise OperatorError("it must be the same operator in all signatures", x.place)
    for s, t in pairs:
        if s is not None and t is not None:
            _compare_types(s, t)


def _compare_types(s: Tensor, t: Tensor) -> None:
    """Raise OperatorError unless two tensors have the same types and numbers of axes."""
    scaled = (s.quantization, t.quantization)
    equal = scaled[0] is scaled[1] or (scaled[0] is not None and scaled[0].same_as(scaled[1]))
    if s.dtype is not t.dtype or s.rank != t.rank or not equal:
        raise OperatorError(f"{s.name} must have the same type in all signatures")


def _list_options(op: Op) -> dict[str, Any]:
    """Return the options of an operator; if RESHAPE has a second input, `new_shape` is left out."""
    options = dict(op.options)
    if op.is_builtin("RESHAPE") and op.operand(1).has_data:
        options.pop("new_shape", None)
    return options


def _are_equal(s: Tensor, t: Tensor) -> bool:
    """Return whether two constants have equal elements; most are one constant of the file."""
    if s.shape != t.shape or s.values.dtype != t.values.dtype:
        return False
    placed = find_address(s.values) == find_address(t.values)
    return placed or digest_elements(s.values) == digest_elements(t.values)


def _find_entry(x: Op, y: Op, index: int) -> int:
    """Return which number of a constant is a length; OperatorError if more differs."""
    s, t = (op.operand(index).values for op in (x, y))
    differing = [] if s.shape != t.shape or s.ndim != 1 else np.flatnonzero(s != t).tolist()
    fits = len(differing) == 1
    if fits and x.is_builtin("RESHAPE") and index == 1:
        fits = min((*s, *t)) > 0
    elif fits and x.is_builtin("SLICE") and index == _LENGTH:
        fits = all(_ends_with_input(op, differing[0]) for op in (x, y))
    else:
        fits = False
    if not fits:
        raise OperatorError(
            f"{x.operand(index).name} must be equal in all signatures, but for one length", x.place
        )
    return int(differing[0])


def _ends_with_input(op: Op, axis: int) -> bool:
    """Return whether a SLICE of constant sizes ends where its input ends along an axis."""
    x, begin, length = (op.operand(i) for i in range(_LENGTH + 1))
    if not x.rank == begin.values.size == length.values.size:
        return False
    return bool(begin.values.flat[axis] + length.values.flat[axis] == x.shape[axis])


def _free_numbers(graph: Graph, free: Mapping[_Place, int]) -> Graph:
    """Return a graph with -1 in the entries `free` of constants."""
    copies: dict[tuple[Tensor, int], Tensor] = {}
    ops = []
    for index, op in enumerate(graph.ops):
        inputs, options = [*op.inputs], op.options
        for i, t in enumerate(op.inputs):
            if t is None or (index, i) not in free:
                continue
            key = t, free[index, i]
            if key not in copies:
                values = t.values.copy()
                values[key[1]] = -1
                copies[key] = replace(t, name=f"{t.name}/{key[1]}", data=values)
            inputs[i] = copies[key]
            if "new_shape" in options:
                shape = tuple(copies[key].values.tolist())
                options = Options({**options, "new_shape": shape})
        ops.append(replace(op, inputs=tuple(inputs), options=options))
    tensors = dict.fromkeys(t for op in ops for t in op.tensors)
    return replace(graph, ops=tuple(ops), tensors=(*dict.fromkeys((*graph.inputs, *tensors)),))


def _find_shapes(graphs: Sequence[Graph]) -> dict[str, tuple[int | str, ...]]:
    """Return the shapes of inputs that have the length; OperatorError if there are several."""
    shapes, lengths = {}, set()
    for tensors in zip(*(graph.inputs for graph in graphs), strict=True):
        sizes = [(*axis_sizes,) for axis_sizes in zip(*(t.shape for t in tensors), strict=True)]
        lengths |= {axis_sizes for axis_sizes in sizes if len({*axis_sizes}) > 1}
        if any(len({*axis_sizes}) > 1 for axis_sizes in sizes):
            shapes[tensors[0].name] = tuple(
                _SIZE if len({*axis_sizes}) > 1 else axis_sizes[0] for axis_sizes in sizes
            )
    if len(lengths) != 1:
        raise OperatorError(
            f"the inputs must differ in one length, got the lengths {sorted(lengths)}"
        )
    return shapes
