"""QLinearConv and QLinearMatMul in place of products between DequantizeLinear and QuantizeLinear.

ONNX's own domain has no other products of integers with scales. A Gemm is a QLinearConv of images
of one pixel, because QLinearMatMul has no bias.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, eliminate_dead_nodes, find_makers, walk_nodes
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.graph import Op
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import EIGHT_BITS
from tflite2onnx.quantize import StoragePlan
from tflite2onnx.tensor import DType, Tensor

MODES = ("qoperator", "qoperator-mixed")  # values of the option `quantization`
_PRODUCTS = ("QLinearConv", "QLinearMatMul")
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
# Nodes that may follow a product in one operator: the clamp of an activation, and changes of shape.
_AFTER = ("Cast", "Clip", "Reshape", "Squeeze", "Transpose")
_PIXEL = np.array([2, 3])  # the axes of an image of one pixel


def make_qlinear_products(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> Sequence[Node]:
    """Return nodes with QLinear products, if the options ask for them, where it is possible.

    Data and weights must be 8-bit integers with zero points. Data and results must have one scale.
    """
    if not g.plan.qoperator:
        return nodes
    makers = find_makers(nodes)
    readers = Counter(value for node in walk_nodes(nodes) for value in node.inputs)
    readers.update(results)
    joined: list[Node] = []
    for node in nodes:
        product = makers.get(node.inputs[0]) if node.op_type == "QuantizeLinear" else None
        form = _FORMS.get(product.op_type) if product is not None else None
        if product is None or form is None or readers[node.inputs[0]] > 1:
            joined.append(node)
            continue
        reads = [None if value is None else makers.get(value) for value in product.inputs]
        joined += form(product, reads, node) if _fit_together(product, reads, node) else [node]
    return eliminate_dead_nodes(joined, results)


def find_pairs(
    ops: Iterable[Op], plan: StoragePlan, stored: Mapping[Tensor, Value], nodes: Sequence[Node]
) -> Iterator[Op]:
    """Yield the operators that compute with dequantized integers, not by a QLinear product.

    `stored` has the values that hold the outputs of the operators.
    """
    makers = find_makers(nodes)
    for op in ops:
        indices = {i for i, t in enumerate(op.inputs) if t is not None and t.data is None}
        indices |= {~i for i in range(len(op.outputs))}
        reads = any(plan.operands[op][i].reading is Reading.DEQUANTIZED for i in indices)
        maker = makers.get(stored.get(op.outputs[0]))
        while maker is not None and maker.op_type in _AFTER:
            maker = makers.get(maker.inputs[0])
        is_joined = maker is not None and maker.op_type in _PRODUCTS
        if reads and not is_joined and not op.is_builtin(*_CONVERSIONS):
            yield op


def _fit_together(product: Node, reads: Sequence[Node | None], result: Node) -> bool:
    """Return whether data, weights and result have 8 bits, and only weights have several scales."""
    pairs = [node for node in (*reads, result) if node is not None]
    narrow = [node for node in (*reads[:2], result) if node is not None]
    zeros = [node.inputs[2] if node.inputs[2:] else None for node in narrow]
    is_read = len(pairs) == len(product.inputs) + 1 and all(
        node.op_type == "DequantizeLinear" for node in pairs[:-1]
    )
    is_narrow = all(zero is not None and zero.dtype in EIGHT_BITS for zero in zeros)
    weights = pairs[1].attributes.get("axis") if len(pairs) > 1 else None
    # The scales are along the axis of the units.
    units = {"Conv": 0, "Gemm": 0 if product.attributes.get("transB") else 1}
    has_axis = weights is None or weights == units.get(product.op_type)
    return is_read and is_narrow and has_axis and "axis" not in pairs[0].attributes


def _join_conv(product: Node, reads: Sequence[Node | None], result: Node) -> list[Node]:
    x, w, *bias = (node.inputs for node in reads if node is not None)
    inputs = (*x, *w, *result.inputs[1:], *(values[0] for values in bias))
    return [Node("QLinearConv", inputs, result.outputs, product.attributes)]


def _join_matmul(_: Node, reads: Sequence[Node | None], result: Node) -> list[Node]:
    a, b = (node.inputs for node in reads if node is not None)
    return [Node("QLinearMatMul", (*a, *b, *result.inputs[1:]), result.outputs, {})]


def _join_gemm(product: Node, reads: Sequence[Node | None], result: Node) -> list[Node]:
    nodes: list[Node] = []

    def add(op_type: str, x: Value | None, *inputs: Value) -> Value:
        attributes = {"perm": [1, 0]} if op_type == "Transpose" else {}
        nodes.append(Node(op_type, (x, *inputs), (Value(),), attributes))
        return nodes[-1].outputs[0]

    x, w, *bias = (node.inputs for node in reads if node is not None)
    pixel, data, weights = Value(_PIXEL, DType.INT64), x[0], w[0]
    if product.attributes.get("transA"):
        data = add("Transpose", data)
    turned = not product.attributes.get("transB")
    if weights is not None and weights.data is not None:
        matrix = weights.data.T if turned else weights.data
        image = Value(np.ascontiguousarray(matrix)[:, :, None, None], weights.dtype, weights.name)
    else:
        image = add("Unsqueeze", add("Transpose", weights) if turned else weights, pixel)
    y = Value()
    inputs = (add("Unsqueeze", data, pixel), *x[1:], image, *w[1:], *result.inputs[1:])
    nodes.append(Node("QLinearConv", (*inputs, *(values[0] for values in bias)), (y,), {}))
    return [*nodes, Node("Squeeze", (y, pixel), result.outputs, {})]


_FORMS: Mapping[str, Callable[[Node, Sequence[Node | None], Node], list[Node]]] = {
    "Conv": _join_conv,
    "Gemm": _join_gemm,
    "MatMul": _join_matmul,
}
