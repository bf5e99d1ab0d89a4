"""Softmax between two Transposes, which becomes a Softmax of the rows of a matrix.

ONNX Runtime moves a Transpose before Softmax through it if that cancels a Transpose behind it
(HandleSoftHardMax in onnx_transpose_optimization.cc). The axis is then no longer stored last, and
the kernel transposes the data itself, element by element: 64x64 pixels of 32 channels between two
convolutions take 0.9 ms in place of 0.25. A Reshape stops the Transposes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.tensor import DType, Sizes

_OPERATORS = ("LogSoftmax", "Softmax")


def keep_softmax_rows(
    nodes: Sequence[Node],
    types: Mapping[Value, tuple[DType, Sizes]],
    make_ints: Callable[[Sequence[int]], Value],
) -> tuple[Node, ...]:
    """Return nodes with a Reshape before and behind each Softmax between two Transposes.

    The shapes of these must be static. `make_ints` returns a constant for a shape.
    """
    if not any(node.op_type in _OPERATORS for node in nodes):
        return tuple(nodes)
    moved = {node.outputs[0] for node in nodes if node.op_type == "Transpose"}
    moved_again = {node.inputs[0] for node in nodes if node.op_type == "Transpose"}
    uses = Counter(value for node in nodes for value in node.inputs)
    kept: list[Node] = []
    for node in nodes:
        x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
        sizes = types[x][1] if x is not None and x in types else ()
        shape = [size for size in sizes if isinstance(size, int)]
        is_between = x in moved and y in moved_again and uses[y] == 1
        is_row = len(shape) == len(sizes) and node.attributes.get("axis") == len(shape) - 1
        if node.op_type not in _OPERATORS or not is_between or not is_row:
            kept.append(node)
            continue
        rows, normalized = Value(), Value()
        kept += (
            Node("Reshape", (x, make_ints([-1, shape[-1]])), (rows,), {}),
            Node(node.op_type, (rows,), (normalized,), {"axis": 1}),
            Node("Reshape", (normalized, make_ints(shape)), (y,), {}),
        )
    return tuple(kept)
