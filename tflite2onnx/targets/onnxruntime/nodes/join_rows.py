"""Rows of a tensor of integers that are multiplied by the same weights, one by one.

Keras unrolls a recurrent layer: each step multiplies its row of the sequence by the weights of the
input. With integers each product has a scale of its own. They become one Gemm, whose rows are
quantized in the scales of the steps by one QuantizeLinear along the first axis:

    part[i] = Split(x)
    y[i] = QuantizeLinear(Gemm(DequantizeLinear(part[i]), weights, bias), scale[i])

    y = Split(QuantizeLinear(Reshape(Gemm(DequantizeLinear(x), weights, bias)), scales, axis=0))

ONNX Runtime takes 1.4 microseconds for a product of one row of 32 numbers, and 0.4 for any other
small node (`costs.py`), so that three rows are enough. The Reshape keeps Gemm and QuantizeLinear
apart: the kernel that joins them, QGemm, takes one scale of the result only. Without a quantized
result it multiplies integers all the same. A QuantizeLinear with several scales stays after the
Reshape (qdq_propagation.cc).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.node_passes import Rewritten
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.targets.onnxruntime.costs import GAIN, Terms, explain_nodes
from tflite2onnx.tensor import DType

_MATRIX = 2  # axes
_BYTES = (DType.INT8, DType.UINT8)
_ALONG_AXIS = 13  # the first opset with scales along an axis


class _RowProduct(NamedTuple):
    """A Gemm of one row, the nodes around it, and the place of the row."""

    before: Node
    gemm: Node
    after: Node
    place: int


def join_rows(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes with one Gemm in place of those of the rows of a tensor."""
    splits = [node for node in nodes if node.op_type == "Split"]
    if g.opset < _ALONG_AXIS or not splits or all(node.op_type != "Gemm" for node in nodes):
        return Rewritten((*nodes,))
    uses = Counter([value for node in nodes for value in node.inputs] + [*results])
    replaced: dict[Value, list[Node]] = {}
    stayed: dict[str, list[Node]] = {}
    for split, group in _find_groups(nodes, splits, uses):
        made = _multiply(g, split, group)
        if isinstance(made, str):
            stayed[made] = [*stayed.get(made, ()), *(product.gemm for product in group)]
            continue
        replaced |= {product.after.outputs[0]: [] for product in group}
        replaced[group[0].gemm.outputs[0]] = made
    joined = tuple(new for node in nodes for new in replaced.get(node.outputs[0], [node]))
    return Rewritten(joined, stayed=stayed)


def _find_groups(
    nodes: Sequence[Node], splits: Sequence[Node], uses: Counter[Value | None]
) -> list[tuple[Node, list[_RowProduct]]]:
    """Return the products of most rows of each Split by the same weights, in order of the nodes."""
    rows: dict[Value | None, tuple[Node, int]] = {
        part: (split, i) for split in splits for i, part in enumerate(split.outputs)
    }
    makers = {
        node.outputs[0]: node
        for node in nodes
        if node.op_type == "DequantizeLinear" and node.inputs[0] in rows
    }
    readers = {node.inputs[0]: node for node in nodes if node.op_type == "QuantizeLinear"}
    groups: dict[tuple[object, ...], tuple[Node, list[_RowProduct]]] = {}
    for node in nodes:
        x, y = node.inputs[0] if node.inputs else None, node.outputs[0]
        if node.op_type == "Gemm" and x in makers and y in readers and uses[y] == 1:
            before, after = makers[x], readers[y]
            split, place = rows[before.inputs[0]]
            key = split.outputs, before.inputs[1:], node.inputs[1:], tuple(node.attributes.items())
            _, group = groups.setdefault(key, (split, []))
            group.append(_RowProduct(before, node, after, place))
    return [
        (split, group)
        for split, group in groups.values()
        if len(split.outputs) / 2 <= len({product.place for product in group})
    ]


def _multiply(g: Builder, split: Node, group: Sequence[_RowProduct]) -> list[Node] | str:
    """Return the nodes of one product, or why the products stay."""
    row = ("integer row", Terms())
    if loss := explain_nodes([row, *3 * [("small", Terms())]], len(group) * [row], GAIN):
        return loss
    x, *sizes = split.inputs
    shape, width = find_static_shape(x, g.types), _find_width(g, group[0])
    places = {product.place: product for product in group}
    rows = len(split.outputs)
    # Rows that are multiplied otherwise get any scale; nothing reads them.
    written = [places.get(i, group[0]).after.inputs[1:] for i in range(rows)]
    values = [v for v in chain.from_iterable(written) if v is not None and v.data is not None]
    kind = next((v.dtype for _, *zero in written for v in zero if v is not None), None)
    if (
        shape is None
        or len(shape) != _MATRIX
        or (shape[0], split.attributes.get("axis", 0)) != (rows, 0)
        or not width
        or len(places) != len(group)
        or kind not in _BYTES
        or any(v.dtype is not kind for v in values[1::2])
        or len(values) != 2 * rows
        or any(v.data is None or v.data.size != 1 for v in values)
    ):
        return "rows must be of one matrix, each with one scale of 8 bits"
    first = group[0]
    numbers = [v.data.item() for v in values if v.data is not None]
    scale = g.constant(np.array(numbers[::2], np.float32), DType.FLOAT32)
    zero = g.constant(np.array(numbers[1::2], kind.numpy), kind)
    real, product, batch, stored, whole = (Value() for _ in range(5))
    parts = tuple(places[i].after.outputs[0] if i in places else Value() for i in range(rows))
    return [
        first.before._replace(inputs=(x, *first.before.inputs[1:]), outputs=(real,)),
        first.gemm._replace(inputs=(real, *first.gemm.inputs[1:]), outputs=(product,)),
        Node("Reshape", (product, g.ints([rows, 1, width])), (batch,), {}),
        Node("QuantizeLinear", (batch, scale, zero), (stored,), {"axis": 0}),
        Node("Reshape", (stored, g.ints([rows, width])), (whole,), {}),
        split._replace(inputs=(whole, *sizes), outputs=parts),
    ]


def _find_width(g: Builder, product: _RowProduct) -> int:
    """Return the number of results of a row, 0 if it is not known."""
    shape = find_static_shape(product.after.outputs[0], g.types) or ()
    return shape[1] if len(shape) == _MATRIX and shape[0] == 1 else 0
