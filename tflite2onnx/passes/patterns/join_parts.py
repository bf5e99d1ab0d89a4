"""Remove operators that split a tensor and join the parts again, and the reverse.

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
"""

from __future__ import annotations

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.passes.patterns.matching import Match, OneOf
from tflite2onnx.passes.patterns.rules import Rule, Rules
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


join_parts = Rules(
    Rule(
        "operators that split a tensor and join the parts again, and the reverse",
        "RESHAPE",
        OneOf(*((code, ...) for code in _INVERSES)),
        _copy_parts,
        floats=False,
    ),
)
