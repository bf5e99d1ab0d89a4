"""Products of integers add their biases themselves.

ONNX Runtime computes DequantizeLinear and MatMul as one node of integers, MatMulIntegerToFloat,
without a bias (qdq_actions.cc), so that an Add reads and writes the result once more. The node has
a bias if ONNX Runtime makes it of

    MatMulInteger -> Cast -> Mul by the product of both scales -> Add of a constant

(matmul_integer_to_float.cc). Weights that are read as int8 or as uint8 (`builder.adaptive_weights`)
then have one If for each product, because branches must have the same type of results:

    If: MatMulInteger(int8), or MatMulInteger(BitwiseXor(Cast(int8), 128))

The numbers are equal. The Add of 1,600 rows of 80 numbers takes 45 microseconds, the bias in the
product 5 (AMD EPYC, family 25, model 17). Weights that several products read stay, because each
product needs a copy of its own.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.adaptive_weights import add_128
from tflite2onnx.builder.builder import (
    AdaptiveWeight,
    Body,
    Builder,
    eliminate_dead_nodes,
    find_bodies,
    find_makers,
    walk_nodes,
)
from tflite2onnx.builder.node_passes import Rewritten
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.rewrites import find_static_shape
from tflite2onnx.builder.store_once import identify_assembly
from tflite2onnx.quantization.storage import move_zero_point
from tflite2onnx.tensor import DType

_TYPES = {"then_branch": DType.INT8, "else_branch": DType.UINT8}
_MATRIX = 2  # axes
_REPEATS = ("Expand", "Reshape")


class _BiasedProduct(NamedTuple):
    """A product of integers plus a bias; `data` dequantizes the integers that weights multiply."""

    data: Node
    weight: AdaptiveWeight
    bias: Value
    result: Value


def add_biases(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes in which products of integers add their biases."""
    if not g.adaptive:
        return Rewritten((*nodes,))
    made = _BiasAdder(g, nodes, results).rewrite(nodes)
    return Rewritten(eliminate_dead_nodes((*made,), results))


class _BiasAdder:
    """Rewrites the sums of a graph, and of the branches of choices."""

    def __init__(self, g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> None:
        self._g = g
        every = (*walk_nodes(nodes),)
        read = [value for node in every for value in node.present]
        bodies = [body for node in every for body in find_bodies(node).values()]
        self._uses = Counter([*read, *results, *(y for body in bodies for y in body.outputs)])
        self._makers: Mapping[Value | None, Node] = find_makers(every)
        self._readers = {value: node for node in every for value in node.present}
        self._copies = Counter(self._identify(value) for value in read if value in g.adaptive)

    def _identify(self, weight: Value) -> Hashable:
        integers = self._g.adaptive[weight].integers
        entry = self._g.assemblies.get(id(integers.data))
        return integers if entry is None else identify_assembly(entry)

    def rewrite(self, nodes: Sequence[Node], dtype: DType | None = None) -> Iterator[Node]:
        """Yield nodes; `dtype` is the type of their weights, None if it is chosen at load."""
        made = set[Value]()
        for node in nodes:
            if self._g.int8_is_exact in node.inputs:
                bodies = {key: self._rewrite_body(key, x) for key, x in find_bodies(node).items()}
                yield node._replace(attributes={**node.attributes, **bodies})
            elif found := self._find_sum(node):
                made.add(found.result)
                yield from self._multiply(found, dtype)
            elif made.isdisjoint(node.outputs):
                yield node

    def _rewrite_body(self, name: str, body: Body) -> Body:
        made = (*self.rewrite(body.nodes, _TYPES[name]),)
        return body._replace(nodes=eliminate_dead_nodes(made, body.outputs))

    def _find_sum(self, add: Node) -> _BiasedProduct | None:
        """Return the sum that a node computes, None if it computes none."""
        if add.op_type != "Add":
            return None
        product, bias = self._makers.get(add.inputs[0]), self._find_row(add.inputs[1])
        if product is None or product.op_type != "MatMul" or bias is None:
            return None
        w, data = product.inputs[1], self._makers.get(product.inputs[0])
        is_scalar = data is not None and data.op_type == "DequantizeLinear" and not data.attributes
        if data is None or not is_scalar or w is None or self._uses[product.outputs[0]] > 1:
            return None
        weight = self._g.adaptive.get(w)
        if weight is None or self._copies[self._identify(w)] > 1:
            return None
        result = self._find_result(add)
        return None if result is None else _BiasedProduct(data, weight, bias, result)

    def _find_row(self, value: Value | None) -> Value | None:
        """Return the constant row that a value repeats, None if it is no such value."""
        while value is not None and value.data is None:
            node = self._makers.get(value)
            value = node.inputs[0] if node and node.op_type in _REPEATS else None
        if value is None or value.data is None or value.data.ndim != 1 or value.data.size == 1:
            return None
        return value

    def _find_result(self, add: Node) -> Value | None:
        """Return the value that has the axes of the product, None if there is none.

        The bias of one row is added with three axes, and a Reshape follows (`multiply_rows`).
        """
        (y,), repeated = add.outputs, self._makers.get(add.inputs[1])
        if repeated is not None and repeated.op_type == "Expand":
            return y
        after = self._readers.get(y)
        if after is None or after.op_type != "Reshape" or self._uses[y] > 1:
            return None
        (matrix,) = after.outputs
        shape = find_static_shape(matrix, self._g.types)
        return matrix if shape is not None and len(shape) == _MATRIX else y

    def _multiply(self, found: _BiasedProduct, dtype: DType | None) -> Iterator[Node]:
        """Yield the nodes of a sum."""
        g, sums = self._g.make_nested(), self._g.make_nested()
        if dtype is None:
            branches = {key: _multiply_in_branch(g, found, key) for key in _TYPES}
            (product,) = sums.add("If", 1, (g.int8_is_exact,), branches)
        else:
            product = _multiply_integers(sums, found, dtype)
        scale, scales = found.data.present[1], found.weight.storage.scale
        scales = scales if len(scales) > 1 else scales.reshape(())
        both = sums.Mul(scale, sums.constant(scales, DType.FLOAT32))
        real = sums.Mul(sums.cast(product, DType.FLOAT32), both)
        sums.Add(real, found.bias)
        *before, add = sums.nodes
        yield from (*before, add._replace(outputs=(found.result,)))


def _multiply_in_branch(g: Builder, found: _BiasedProduct, name: str) -> Body:
    inner = g.make_nested()
    product = _multiply_integers(inner, found, _TYPES[name])
    return Body(f"{_TYPES[name].label}_product", (), tuple(inner.nodes), (product,), ())


def _multiply_integers(g: Builder, found: _BiasedProduct, dtype: DType) -> Value:
    """Return the product of integers and of weights of a type, int32."""
    (integers, storage, order), (x, _, *zero) = found.weight, found.data.present
    weights = add_128(g, integers, len(order)) if dtype is DType.UINT8 else integers
    point = move_zero_point(storage, dtype).zero_point
    points = g.constant(np.array(point, dtype.numpy), dtype) if point else None
    return g.MatMulInteger(x, weights, zero[0] if zero else None, points)
