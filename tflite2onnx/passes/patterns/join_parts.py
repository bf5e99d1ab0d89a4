"""Operators that split a tensor, or join tensors.

`join_parts`: operators that undo each other become copies, which need no node.

    PACK(UNPACK(x)), CONCATENATION(SPLIT(x))              x
    UNPACK(PACK(a, b)), SPLIT(CONCATENATION(a, b))        a, b

SPLIT stands for SPLIT_V too. Recurrent layers that are unrolled one after the other contain them.

1. Both operators have the same constant axis, and no activation is applied.
2. The parts that are joined are all parts of the tensor, in sequence; or the parts of the joined
   tensor have the sizes of the tensors that were joined.
3. No tensor is quantized, or all are alike.
"""

import numpy as np

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.op.movement.concat_split import Split
from tflite2onnx.passes.operands import find_data
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
    """Return the axis along which an operator splits or joins, None if it is not constant."""
    rank = max(t.rank for t in (op.outputs[0], _list_data(op)[0]))
    listed = op.operand(0 if op.code == "SPLIT" else 2).values
    axis = listed if op.is_builtin(*Split.codes) else np.asarray(op.options.get("axis", 0))
    return int(axis.item()) % rank if axis.size else None


def _are_alike(x: Tensor, y: Tensor) -> bool:
    """Return whether a copy of x is y."""
    return x.sizes == y.sizes and same_quantization(x.quantization, y.quantization)


@rule(
    "operators that split a tensor and join the parts again, and the reverse",
    "RESHAPE",
    any_of(_INVERSES, ...),
    dtype=None,
    needs=("PACK", "SPLIT", "SPLIT_V"),
)
def join_parts(found: Match) -> list[Op]:
    """Return what replaces the match, or why nothing does."""
    op, data = found.last, _list_data(found.last)
    first = found.graph.producers.find(data[0])
    if not first.is_builtin(*_INVERSES[op.code]) or data != first.outputs:
        return []
    sources, axis = _list_data(first), find_axis(op)
    if len(sources) != len(op.outputs) or axis is None or axis != find_axis(first):
        return []
    pairs = list(zip(sources, op.outputs, strict=True))
    plain = {op.activation, first.activation} == {"NONE"}
    return [copy_op(op, *p) for p in pairs] if plain and all(_are_alike(*p) for p in pairs) else []
