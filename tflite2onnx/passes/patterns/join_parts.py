"""Operators that split a tensor, or join tensors.

`join_parts`: operators that undo each other become copies, which need no node.

    PACK(UNPACK(x)), CONCATENATION(SPLIT(x))              x
    UNPACK(PACK(a, b)), SPLIT(CONCATENATION(a, b))        a, b

SPLIT stands for SPLIT_V too. Recurrent layers that are unrolled one behind the other contain them.

1. Both operators have the same constant axis, and no activation is applied.
2. The parts that are joined are all parts of the tensor, in sequence; or the parts of the joined
   tensor have the sizes of the tensors that were joined.
3. No tensor is quantized, or all are alike.

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

import numpy as np

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.passes.patterns.matching import Match, any_of
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, make_int32, make_like
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
_DATA = {"SPLIT": slice(1, 2), "SPLIT_V": slice(1)}  # the inputs that are split; all elsewhere
_AXIS = {"SPLIT": 0, "SPLIT_V": 2}  # the input that is the axis; an option elsewhere
_RANKS = range(1, 4)  # of parts that become flat
_FEWEST = 2  # of them
# How many nodes an operator becomes depends on what `emit` adds for these operands: a node besides
# a Reshape, or a Reshape only.
_RESHAPES = ("EXPAND_DIMS", "GRU", "RESHAPE", "SQUEEZE", "UNPACK", "PACK")
_RECURRENT = "UNIDIRECTIONAL_SEQUENCE_"


def _list_data(op: Op) -> tuple[Tensor, ...]:
    """Return the inputs that are split or joined."""
    return op.present[_DATA.get(op.code, slice(None))]


def _find_axis(op: Op) -> int | None:
    """Return the axis along which an operator splits or joins, None if it is not constant."""
    rank = max(t.rank for t in (op.outputs[0], _list_data(op)[0]))
    option = np.asarray(op.options.get("axis", 0))
    axis = op.operand(_AXIS[op.code]).values if op.code in _AXIS else option
    return int(axis.item()) % rank if axis.size else None


def _are_alike(x: Tensor, y: Tensor) -> bool:
    """Return whether a copy of x is y."""
    return x.sizes == y.sizes and same_quantization(x.quantization, y.quantization)


def _copy_parts(found: Match) -> list[Op]:
    op, data = found.last, _list_data(found.last)
    first = found.graph.producers.find(data[0])
    if not first.is_builtin(*_INVERSES[op.code]) or data != first.outputs:
        return []
    sources, axis = _list_data(first), _find_axis(op)
    if len(sources) != len(op.outputs) or axis is None or axis != _find_axis(first):
        return []
    pairs = list(zip(sources, op.outputs, strict=True))
    plain = {op.activation, first.activation} == {"NONE"}
    return [copy_op(op, *p) for p in pairs] if plain and all(_are_alike(*p) for p in pairs) else []


def _flatten(found: Match) -> list[Op]:
    op, graph, joins = found.last, found.graph, found.last.code == "PACK"
    whole, parts = (found.output, op.present) if joins else (op.operand(0), op.outputs)
    find_neighbour = graph.producers.find if joins else graph.readers.find_only_reader
    neighbours = [find_neighbour(t) for t in parts]
    if any(n.is_builtin(*_RESHAPES) or n.code.startswith(_RECURRENT) for n in neighbours):
        return []
    axis, shape = _find_axis(op), [*parts[0].shape]
    if len(parts) < _FEWEST or len(shape) not in _RANKS or axis is None or axis >= len(shape):
        return []
    if any(t.symbols or 0 in t.shape or t.has_data for t in (whole, *parts)):
        return []
    if not all(same_quantization(whole.quantization, t.quantization) for t in parts):
        return []
    rw = Rewriter(op)
    shape[axis] *= len(parts)
    flat = make_like(whole, "flat", (*shape,))
    if joins:
        rw.op("CONCATENATION", *parts, output=flat, axis=axis, fused_activation_function="NONE")
        rw.reshape(flat, output=whole)
        return rw.ops
    rw.reshape(whole, output=flat)
    return [*rw.ops, replace(op, code="SPLIT", inputs=(make_int32("axis", axis), flat))]


join_parts = Rules(
    Rule(
        "operators that split a tensor and join the parts again, and the reverse",
        "RESHAPE",
        any_of(_INVERSES, ...),
        _copy_parts,
        floats=False,
    ),
)
flatten_packs = Rules(
    Rule("PACK", "CONCATENATION, RESHAPE", ("PACK", ...), _flatten, floats=False),
    Rule("UNPACK", "RESHAPE, SPLIT", ("UNPACK", ...), _flatten, floats=False),
)
