"""PACK becomes CONCATENATION and RESHAPE, and UNPACK becomes RESHAPE and SPLIT.

ONNX has neither operator. Each part of PACK needs an Unsqueeze, each part of UNPACK a Squeeze; the
other form has two nodes for any number of parts. ONNX Runtime takes 0.9 of the time for 2 parts and
0.7 for 16. An operator is replaced if

1. it has at least two parts, of static shapes of one to three axes and of one quantization;
2. the new axis is not the last one: then the parts are not consecutive along another axis;
3. no part is the result of a RESHAPE or of an operator that becomes one, or is read by one: the
   Unsqueeze and the Reshape need no node together. Parts are not constant either.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Op
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import Rewriter, int32_constant
from tflite2onnx.quantization.storage import same_quantization

_AXES = range(1, 4)
_PARTS = 2
# How many nodes an operator becomes depends on what `emit` adds for these operands.
_RESHAPES = ("EXPAND_DIMS", "GRU", "RESHAPE", "SQUEEZE", "UNPACK", "PACK")
_RECURRENT = "UNIDIRECTIONAL_SEQUENCE_"


def _becomes_reshape(op: Op) -> bool:
    """Return whether an operator becomes a node besides a Reshape, or a Reshape only."""
    return op.is_builtin(*_RESHAPES) or op.code.startswith(_RECURRENT)


def _flatten(found: Match) -> list[Op]:
    op, graph, joins = found.last, found.graph, found.last.code == "PACK"
    whole, parts = (found.output, op.present) if joins else (op.operand(0), op.outputs)
    find_neighbour = graph.producers.find if joins else graph.readers.find_only_reader
    if any(_becomes_reshape(find_neighbour(t)) for t in parts):
        return []
    axis, first = int(op.options.get("axis", 0)), parts[0]
    axis += whole.rank if axis < 0 else 0
    if len(parts) < _PARTS or first.rank not in _AXES or not 0 <= axis < first.rank:
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
    split = replace(op, code="SPLIT", inputs=(int32_constant("axis", axis), flat))
    return [*rw.ops, split]


flatten_packs = Rules(
    Rule("PACK", "CONCATENATION, RESHAPE", ("PACK", ...), _flatten, floats=False),
    Rule("UNPACK", "RESHAPE, SPLIT", ("UNPACK", ...), _flatten, floats=False),
)
