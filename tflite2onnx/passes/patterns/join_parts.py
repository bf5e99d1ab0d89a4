"""Operators that split a tensor, or join tensors.

`join_parts`: operators that split a tensor and join the parts again, and the reverse, are removed.

    PACK(UNPACK(x))             x
    CONCATENATION(SPLIT(x))     x
    UNPACK(PACK(a, b))          a, b
    SPLIT(CONCATENATION(a, b))  a, b

SPLIT stands for SPLIT_V too. Recurrent layers that are unrolled one behind the other contain them.
They are replaced by copies, which need no node, if

1. both operators have the same constant axis;
2. the parts that are joined are all parts of the tensor, in sequence; or the parts of the joined
   tensor have the sizes of the tensors that were joined;
3. no activation is applied, and all tensors have one dtype and are not quantized, or all alike.

`flatten_packs`: PACK becomes CONCATENATION and RESHAPE, and UNPACK becomes RESHAPE and SPLIT. ONNX
has neither operator. Each part of PACK needs an Unsqueeze, each part of UNPACK a Squeeze; the other
form has two nodes for any number of parts. ONNX Runtime takes 0.9 of the time for 2 parts and 0.7
for 16. An operator is replaced if

1. it has at least two parts, of static shapes of one to three axes and of one quantization;
2. the new axis is not the last one: then the parts are not consecutive along another axis;
3. no part is the result of a RESHAPE or of an operator that becomes one, or is read by one: the
   Unsqueeze and the Reshape need no node together. Parts are not constant either.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.tensor import Tensor

# Pairs of operators: no class can name another one.
_INVERSES = {
    "PACK": ("UNPACK",),
    "CONCATENATION": ("SPLIT", "SPLIT_V"),
    "UNPACK": ("PACK",),
    "SPLIT": ("CONCATENATION",),
    "SPLIT_V": ("CONCATENATION",),
}
_JOINS = ("PACK", "CONCATENATION")  # the others split
_AXIS = {"SPLIT": 0, "SPLIT_V": 2}  # the input that is the axis; an option elsewhere
_RANKS = range(1, 4)  # of parts that become flat
_FEWEST = 2  # of them
# How many nodes an operator becomes depends on what `emit` adds for these operands.
_RESHAPES = ("EXPAND_DIMS", "GRU", "RESHAPE", "SQUEEZE", "UNPACK", "PACK")
_RECURRENT = "UNIDIRECTIONAL_SEQUENCE_"


def _copy_parts(found: Match) -> list[Op]:
    op, data = found.last, _list_data(found.last)
    first = found.graph.producers.find(data[0])
    if not first.is_builtin(*_INVERSES[op.code]) or data != first.outputs:
        return []
    sources, axes = _list_data(first), {_find_axis(op), _find_axis(first)}
    if len(sources) != len(op.outputs) or len(axes) != 1 or None in axes:
        return []
    pairs = list(zip(sources, op.outputs, strict=True))
    if {op.activation, first.activation} != {"NONE"} or not all(_are_alike(*p) for p in pairs):
        return []
    return [copy_op(op, *pair) for pair in pairs]


def _list_data(op: Op) -> tuple[Tensor, ...]:
    """Return the inputs that are split or joined."""
    places = {"SPLIT": slice(1, 2), "SPLIT_V": slice(1)}
    return op.present[places.get(op.code, slice(None))]


def _find_axis(op: Op) -> int | None:
    """Return the axis along which an operator splits or joins, None if it is not constant."""
    whole = op.outputs[0] if op.code in _JOINS else _list_data(op)[0]
    given = [op.options.get("axis", 0)]
    if op.code in _AXIS:
        given = op.operand(_AXIS[op.code]).values.reshape(-1).tolist()
    in_range = len(given) == 1 and -whole.rank <= given[0] < whole.rank
    return int(given[0]) % whole.rank if in_range else None


def _are_alike(x: Tensor, y: Tensor) -> bool:
    """Return whether a copy of x is y."""
    same = x.sizes == y.sizes and x.dtype is y.dtype
    return same and same_quantization(x.quantization, y.quantization)


def _becomes_reshape(op: Op) -> bool:
    """Return whether an operator becomes a node besides a Reshape, or a Reshape only."""
    return op.is_builtin(*_RESHAPES) or op.code.startswith(_RECURRENT)


def _flatten(found: Match) -> list[Op]:
    op, graph, joins = found.last, found.graph, found.last.code == "PACK"
    whole, parts = (found.output, op.present) if joins else (op.operand(0), op.outputs)
    find_neighbour = graph.producers.find if joins else graph.readers.find_only_reader
    if any(_becomes_reshape(find_neighbour(t)) for t in parts):
        return []
    axis, first = _find_axis(op), parts[0]
    if len(parts) < _FEWEST or first.rank not in _RANKS or axis is None or axis >= first.rank:
        return []
    if any(t.symbols or 0 in t.shape or t.has_data for t in (whole, *parts)):
        return []
    same = all(same_quantization(whole.quantization, t.quantization) for t in parts)
    if not same or any(t.dtype is not whole.dtype for t in parts):
        return []
    rw, shape = Rewriter(op), list(first.shape)
    shape[axis] *= len(parts)
    flat = replace(whole, name=f"{whole.name}/flat", shape=(*shape,), shape_signature=(), data=None)
    if joins:
        rw.op("CONCATENATION", *parts, output=flat, axis=axis, fused_activation_function="NONE")
        rw.reshape(flat, output=whole)
        return rw.ops
    rw.reshape(whole, output=flat)
    split = replace(op, code="SPLIT", inputs=(make_int32("axis", axis), flat))
    return [*rw.ops, split]


join_parts = Rules(
    Rule(
        "operators that split a tensor and join the parts again, and the reverse",
        "RESHAPE",
        OneOf(*((code, ...) for code in _INVERSES)),
        _copy_parts,
        floats=False,
    ),
)
flatten_packs = Rules(
    Rule("PACK", "CONCATENATION, RESHAPE", ("PACK", ...), _flatten, floats=False),
    Rule("UNPACK", "RESHAPE, SPLIT", ("UNPACK", ...), _flatten, floats=False),
)
