"""Operators that split a tensor, or join tensors.

`drop_other_parts`: a slice of joined tensors is a copy of the part that it takes, and nothing reads
the others. A recurrent layer that PyTorch unrolls joins all steps, and often only the last is read.
With integers each step is first brought to a common scale.

    SLICE(CONCATENATION(a, b))      b, if it takes all elements of b and no others

1. The parts are joined along the first axis of more than one element, without an activation; a
   RESHAPE may stand between the operators.
2. All sizes are known, and the part and the slice are not quantized, or alike.

`join_parts`: operators that undo each other become copies, which need no node.

    PACK(UNPACK(x)), CONCATENATION(SPLIT(x))              x
    UNPACK(PACK(a, b)), SPLIT(CONCATENATION(a, b))        a, b

SPLIT stands for SPLIT_V too. Recurrent layers that are unrolled one after the other contain them.

1. Both operators have the same constant axis, and no activation is applied.
2. The parts that are joined are all parts of the tensor, in sequence; or the parts of the joined
   tensor have the sizes of the tensors that were joined.
3. No tensor is quantized, or all are alike.
"""

from math import prod

import numpy as np

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.op.movement.concat_split import Split
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.passes.operands import find_data, find_taken_ranges
from tflite2onnx.passes.patterns.matching import Match, any_of
from tflite2onnx.passes.patterns.rules import rule
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


def _list_data(op: Op) -> tuple[Tensor, ...]:
    """Return the inputs that are split or joined."""
    return (find_data(op),) if op.is_builtin(*Split.codes) else op.present


def find_axis(op: Op) -> int | None:
    """Return the axis along which an operator splits or joins, None if it is not known."""
    rank = max(t.rank for t in (op.outputs[0], _list_data(op)[0]))
    listed = op.operand(0 if op.code == "SPLIT" else 2).values
    axis = listed if op.is_builtin(*Split.codes) else np.asarray(op.options.get("axis", 0))
    return int(axis.item()) % rank if axis.size and rank else None


def _are_alike(x: Tensor, y: Tensor) -> bool:
    """Return whether a copy of x is y."""
    return x.sizes == y.sizes and same_quantization(x.quantization, y.quantization)


def _find_elements(op: Op) -> range:
    """Return the elements that a slice takes of its input, one after another; none otherwise."""
    shape, taken = op.operand(0).shape, find_taken_ranges(op)
    first = min(taken, default=0)
    if len(taken) != 1 or 0 in shape or any(size != 1 for size in shape[:first]):
        return range(0)
    size = prod(shape[first + 1 :])
    indices = taken[first]
    if indices.step != 1:
        return range(0)
    return range(indices.start * size, indices.stop * size)


@rule(
    "slice of joined tensors that takes one of them",
    "RESHAPE",
    any_of(SLICES, ...),
    dtype=None,
    needs=("CONCATENATION", "PACK"),
)
def drop_other_parts(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, find = found.last, found.graph.producers
    joined = find.find(find.trace(op.operand(0), "RESHAPE"))
    y, parts, axis = found.output, joined.present, find_axis(joined) if joined.outputs else None
    if (
        not joined.is_builtin("CONCATENATION", "PACK")
        or axis is None
        or joined.activation != "NONE"
    ):
        return "the tensor must be joined along a constant axis, without an activation"
    whole = joined.outputs[0]
    if any(t.symbols for t in (*parts, whole, op.operand(0), y)) or prod(whole.shape[:axis]) != 1:
        return "all sizes must be known, and the parts follow each other"
    elements, begin = _find_elements(op), 0
    for part in parts:
        if elements == range(begin, begin + part.elements) and elements:
            alike = same_quantization(part.quantization, y.quantization)
            return [copy_op(op, part, y, resizes=False)] if alike else "the scales must be equal"
        begin += part.elements
    return "the slice must take all elements of one part"


@rule(
    "operators that split a tensor and join the parts again, and the reverse",
    "RESHAPE",
    any_of(_INVERSES, ...),
    dtype=None,
    needs=("PACK", "SPLIT", "SPLIT_V"),
)
def join_parts(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    op, data = found.last, _list_data(found.last)
    first = found.graph.producers.find(data[0])
    if not first.is_builtin(*_INVERSES[op.code]) or data != first.outputs:
        return "its inputs must be all outputs of the opposite operator, in sequence"
    sources, axis = _list_data(first), find_axis(op)
    if len(sources) != len(op.outputs) or axis is None or axis != find_axis(first):
        return "both must have the same constant axis, and as many parts"
    pairs = list(zip(sources, op.outputs, strict=True))
    plain = {op.activation, first.activation} == {"NONE"}
    if not plain or not all(_are_alike(*p) for p in pairs):
        return "the parts must have equal sizes and scales, and no activation"
    return [copy_op(op, *p) for p in pairs]
