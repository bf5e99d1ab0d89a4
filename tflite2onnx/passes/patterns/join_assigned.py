"""Indices of a tensor that are assigned one after another are joined.

PyTorch writes `y[:, t] = row` for each t in a loop. litert-torch exports each assignment as a
selection over the whole of y, by a constant mask:

    y[t] = SELECT_V2(axis == t, row[t], y[t - 1])
    y = CONCATENATION(row[0], row[1], ...)

The selections are replaced if

1. the masks are constant, and each is true for one index along the same axis;
2. all indices are assigned; the last assignment counts;
3. the rows have one index along the axis, also before a BROADCAST_TO, and all other indices.
"""

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.tensor import Tensor


def _find_index(op: Op) -> tuple[int, int] | None:
    """Return the axis and the only index at which an operator selects its second input."""
    mask = op.operand(0)
    if not op.is_builtin("SELECT_V2") or not mask.has_data or op.outputs[0].symbols:
        return None
    rank = op.outputs[0].rank
    axes = [i for i, size in enumerate(mask.shape, rank - mask.rank) if size > 1]
    chosen = np.flatnonzero(mask.values)
    return (axes[0], int(chosen[0])) if len(axes) == chosen.size == 1 else None


@rule(
    "assignments of all indices of a tensor, one after another",
    "CONCATENATION",
    ("SELECT_V2", ...),
    dtype=None,
)
def join_assigned(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    graph, op, y = found.graph, found.last, found.output
    place = _find_index(op)
    reader = graph.readers.find_only_reader(y)
    if not place or (reader.operand(2) is y and _find_index(reader)):
        return "it must be the last of several assignments, by a mask of one index"
    axis = place[0]
    shape = (*y.shape[:axis], 1, *y.shape[axis + 1 :])
    rows: dict[int, Tensor] = {}
    while place and place[0] == axis:
        row = op.operand(1)
        maker = graph.producers.find(row)
        row = maker.operand(0) if maker.is_builtin("BROADCAST_TO") else row
        row_shape = (1,) * (y.rank - row.rank) + row.shape
        if row_shape != shape or not same_quantization(row.quantization, y.quantization):
            return "each row must have one index along the axis, and the scale of the result"
        rows.setdefault(place[1], row)
        op = graph.producers.find(op.operand(2))
        place = _find_index(op)
    if len(rows) != y.shape[axis]:
        return "all indices must be assigned"
    rw = Rewriter(found.last)
    parts = [
        row if row.rank == y.rank else rw.reshape(row, shape, like=y, name="row")
        for _, row in sorted(rows.items())
    ]
    rw.op("CONCATENATION", *parts, output=y, axis=axis)
    return rw.ops
