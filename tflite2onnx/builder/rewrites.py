"""Rewrites of the nodes of a graph, before the model is written.

`join_reshapes`: chains of Reshape, Squeeze and Unsqueeze become one Reshape or none. Operators emit
these nodes around ONNX operators with other axes, such as LSTM or a convolution along one axis.
Between two such operators, one node reverses the other.

`keep_float_weights`: products of dequantized data and float weights, whose results are quantized
again. ONNX Runtime 1.22 and newer round the weights of such a Conv, ConvTranspose or Gemm to int8,
with one scale for all channels (weight_bias_quantization.cc): 7 % of the results differ by a step,
and some networks are wrong by 30 steps. Weights that are folded at load are such weights, too.
Files for other runtimes are run in ONNX Runtime as well, so that every target has these nodes. A
Gemm is left alone if its bias has two axes. A convolution is left alone if its data have more than
one scale: DequantizeLinear with a scale for each index of an axis, all of them equal, gives
the same data. Before opset 13 this node becomes Cast, Sub and Mul, and weights with a scale for
each channel are float weights, too. Data of symmetric integers keep one scale, because the runtimes
that need these integers take no other.

`merge_equal_nodes`: nodes that compute the same values become one node. Operators that read the
same tensor may emit the same nodes: the extremes of data that several products quantize, or a
Reshape to a shape that an ONNX operator requires.

`share_copied_outputs`: an output that copies a computed quantized tensor, by DequantizeLinear and
QuantizeLinear of one scale. ONNX Runtime before 1.31 removes these two nodes without renaming the
tensor for its other readers, and refuses the model (qdq_final_cleanup.cc).

`omit_zero_states`: computed initial states of recurrent nodes that are zeros, the default of ONNX's
nodes. A layer whose batch is dynamic reads the size of the batch from its sequence, and makes zeros
of this size. These are eight nodes.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tflite2onnx.builder.builder import (
    Body,
    Builder,
    Port,
    find_bodies,
    find_makers,
    find_readers,
    walk_nodes,
)
from tflite2onnx.builder.nodes import Node, Types, Value
from tflite2onnx.builder.opsets import DOMAINS, ORDINARY_OPSET
from tflite2onnx.tensor import DType, Shape

_RESHAPES = ("Reshape", "Squeeze", "Unsqueeze")
# Element types for which ONNX Runtime's Reshape takes constants only.
_PACKED = (DType.INT2, DType.INT4, DType.UINT4)


def join_reshapes(
    nodes: Sequence[Node],
    types: Types,
    outputs: Collection[Value],
    make_ints: Callable[[Sequence[int]], Value],
) -> tuple[Node, ...]:
    """Return nodes in which one Reshape of the value before a chain replaces the chain.

    `outputs` are the outputs of the graph. `make_ints` returns a constant for a shape. Nodes that
    nothing reads any more are kept: `eliminate_dead_nodes` removes them. Nested graphs stay as they
    are.
    """
    inner = (body for node in nodes for body in find_bodies(node).values())
    read_inside = {value for body in inner for n in walk_nodes(body.nodes) for value in n.inputs}
    chains = _Chains(types, {*outputs, *(value for value in read_inside if value is not None)})
    return tuple(chains.join(node, make_ints) for node in nodes)


def find_static_shape(value: Value | None, types: Types) -> Shape | None:
    """Return the shape of a value, None if it is not known or dynamic."""
    if value is None or value not in types:
        return None
    sizes = types[value][1]
    fixed = tuple(size for size in sizes if isinstance(size, int))
    return fixed if len(fixed) == len(sizes) else None


class _Chains:
    """Values, and earlier values that have the same elements in another shape."""

    def __init__(self, types: Types, kept: Collection[Value]) -> None:
        self._types = types
        self._kept = kept
        self._shapes: dict[Value, Shape] = {}
        # The input of the chain of Reshapes that ends in a value.
        self._source: dict[Value, Value] = {}
        # The input of the chain, if it has the shape of the value.
        self._equal: dict[Value, Value] = {}

    def join(self, node: Node, make_ints: Callable[[Sequence[int]], Value]) -> Node:
        """Return a node that reads the values before chains, if their shapes are known."""
        node = node.with_inputs(self._equal)
        x = node.inputs[0] if node.inputs else None
        if node.op_type not in _RESHAPES or node.domain or x is None or x.data is not None:
            return node
        (result,) = node.outputs
        self._infer_shapes(node, x, result)
        source, shape = self._source.get(x, x), self._find_shape(result)
        self._source[result] = source
        if shape is None or 0 in shape or self._is_packed(source):
            return node
        if shape == self._find_shape(source) and result not in self._kept:
            self._equal[result] = source
        # Type inference would give a dynamic size another name.
        if source is x or (-1 in shape and result not in self._types):
            return node
        return Node("Reshape", (source, make_ints(shape)), node.outputs, {})

    def _infer_shapes(self, node: Node, x: Value, result: Value) -> None:
        """Infer the shape before or after Squeeze and Unsqueeze from the other shape."""
        axes = node.inputs[1] if node.inputs[1:] else None
        if node.op_type == "Reshape" or axes is None or axes.data is None:
            return
        short, long = (x, result) if node.op_type == "Unsqueeze" else (result, x)
        sizes, all_sizes = self._find_shape(short), self._find_shape(long)
        if sizes is not None and all_sizes is None:
            rest, rank = iter(sizes), len(sizes) + axes.data.size
            ones = {int(axis) % rank for axis in axes.data}
            self._shapes[long] = tuple(1 if i in ones else next(rest) for i in range(rank))
        elif all_sizes is not None and sizes is None:
            ones = {int(axis) % len(all_sizes) for axis in axes.data}
            kept = (size for i, size in enumerate(all_sizes) if i not in ones)
            self._shapes[short] = tuple(kept)

    def _find_shape(self, value: Value) -> Shape | None:
        """Return the shape of a value, None if it is not known or has several dynamic sizes.

        The only dynamic size is -1. It follows from the number of elements, which reshapes keep.
        """
        if value not in self._types:
            return self._shapes.get(value)
        shape = tuple(size if isinstance(size, int) else -1 for size in self._types[value][1])
        return shape if shape.count(-1) <= 1 else None

    def _is_packed(self, value: Value) -> bool:
        return value in self._types and self._types[value][0] in _PACKED


_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
# ONNX Runtime moves DequantizeLinear after these nodes, and QuantizeLinear before them.
_MOVES = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
# ONNX Runtime fuses these nodes into the product before them.
_FUSED = ("Add", "Clip", "Mul", "Relu")
_ENDS = ("DequantizeLinear", "QuantizeLinear")


def keep_float_weights(
    g: Builder, nodes: Sequence[Node], outputs: Collection[Value]
) -> tuple[Node, ...]:
    """Return nodes in which such products have another bias, or data of several equal scales.

    `outputs` are the outputs of the graph. Nodes that nothing reads any more are kept.
    """
    if not {node.op_type for node in nodes}.issuperset(_ENDS):
        return tuple(nodes)
    makers, readers, constants = find_makers(nodes), find_readers(nodes), _find_constants(g, nodes)
    kept: list[Node] = []
    for node in nodes:
        is_product = node.op_type in _PRODUCTS and node.present[1] in constants
        is_rounded = is_product and _is_quantized_again(node.outputs[0], readers, outputs)
        if is_rounded and node.op_type == "Gemm":
            kept += _add_axis_to_bias(g, node)
        elif is_rounded and not g.plan.symmetric:
            kept += _repeat_scale(g, node, makers)
        else:
            kept.append(node)
    return tuple(kept)


def _find_constants(g: Builder, nodes: Sequence[Node]) -> set[Value]:
    """Return the constants, and the values that are folded at load, without dequantized ones.

    DequantizeLinear of older opsets has no axis: such a node becomes Cast, Sub and Mul, which are
    folded.
    """
    found = {value for node in nodes for value in node.present if value.data is not None}
    for node in nodes:
        has_axis = node.attributes.get("axis") is not None
        is_folded = node.op_type != "DequantizeLinear" or (has_axis and g.opset < ORDINARY_OPSET)
        if is_folded and node.present and found.issuperset(node.present):
            found.update(node.outputs)
    return found


def _is_quantized_again(
    value: Value, readers: Mapping[Value, Sequence[Node]], outputs: Collection[Value]
) -> bool:
    """Return whether only QuantizeLinear reads a value, maybe after nodes that do not stop it."""
    while value not in outputs and len(readers.get(value, ())) == 1:
        (node,) = readers[value]
        if node.op_type == "QuantizeLinear":
            return True
        if node.op_type not in (*_FUSED, *_MOVES):
            return False
        value = node.outputs[0]
    return False


def _add_axis_to_bias(g: Builder, product: Node) -> Iterator[Node]:
    """Yield a Gemm whose bias has two axes, after the node that makes a computed bias so."""
    data, weights, *biases = product.present
    bias = biases[0] if biases else g.constant(np.zeros(1, np.float32))
    if bias.data is None:
        row = Value()
        yield Node("Reshape", (bias, g.ints([1, -1])), (row,), {})
    else:
        row = g.constant(np.atleast_2d(bias.data), bias.dtype)
    yield product._replace(inputs=(data, weights, row))


def _repeat_scale(g: Builder, product: Node, makers: Mapping[Value | None, Node]) -> Iterator[Node]:
    """Yield the nodes from DequantizeLinear to a convolution; this alone if there is none."""
    moves: list[Node] = []
    source = makers.get(product.present[0])
    while source and source.op_type in _MOVES:
        moves.insert(0, source)
        source = makers.get(source.present[0])
    read = _dequantize_by_axis(g, source) if source else None
    if read is None:
        yield product
        return
    yield read
    (value,) = read.outputs
    for node in moves:
        like = g.types.get(node.outputs[0])
        moved = g.annotate(Value(), *like) if like else Value()
        yield node._replace(inputs=(value, *node.inputs[1:]), outputs=(moved,))
        value = moved
    yield product._replace(inputs=(value, *product.inputs[1:]))


def _dequantize_by_axis(g: Builder, node: Node) -> Node | None:
    """Return a DequantizeLinear with its scale repeated, None if it is another node.

    The kernel has a loop for each index of the axis, so an early axis is the fastest.
    """
    integers, *numbers = node.present
    known = [each.data for each in numbers if each.data is not None and each.data.size == 1]
    dtype, sizes = g.types.get(node.outputs[0], (DType.FLOAT32, ()))
    axes = ((i, n) for i, n in enumerate(sizes) if isinstance(n, int) and n > 1)
    axis, size = next(axes, (0, 0))
    if node.op_type != "DequantizeLinear" or len(known) < len(numbers) or not size:
        return None
    pairs = zip(numbers, known, strict=True)
    repeated = (g.constant(np.full(size, data, data.dtype), each.dtype) for each, data in pairs)
    made = g.annotate(Value(), dtype, sizes)
    return Node("DequantizeLinear", (integers, *repeated), (made,), {"axis": axis})


# Operators whose nodes may return another result each time. Operators in a user's domain and
# operators with nested graphs are kept too.
_KEPT = frozenset(
    {
        *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
        *("RandomUniform", "RandomUniformLike", "Loop", "Scan"),
    }
)
_KNOWN = ("", *DOMAINS)

Merged = Mapping[Value, Value]


def merge_equal_nodes(
    nodes: Sequence[Node], outputs: Collection[Value], known: Merged = MappingProxyType({})
) -> tuple[tuple[Node, ...], Merged]:
    """Return each node once, and the values of the removed nodes with the equal values that stay.

    Nodes are equal if they have the same operator, attributes and inputs. Constants are the same
    only if they are one `Value`: constants that must stay separate are not pooled
    (`Nodes.make_separate_constant`). Random nodes, loops, and nodes that compute one of `outputs`,
    the outputs of the graph, stay. The nodes of a nested graph are compared with each other only;
    `known` are the values that were removed from the enclosing graphs.
    """
    merged = dict(known)
    alike: dict[tuple[object, ...], list[Node]] = {}
    results = []
    for node in nodes:
        current = _read_merged(node, merged)
        key = (node.op_type, node.domain, current.inputs, len(node.outputs))
        may_go = node.op_type not in _KEPT and node.domain in _KNOWN
        others = alike.setdefault(key, []) if may_go else []
        match = next((each for each in others if _have_equal_attributes(each, current)), None)
        if match and not any(value in outputs for value in node.outputs):
            merged.update(zip(node.outputs, match.outputs, strict=True))
        else:
            others.append(current)
            results.append(current)
    return tuple(results), merged


def share_copied_outputs(
    nodes: Sequence[Node], types: Types, outputs: Collection[Value]
) -> tuple[tuple[Node, ...], Merged]:
    """Return nodes that read such an output in place of the tensor, and the tensors' outputs."""
    makers, merged = find_makers(nodes), dict[Value, Value]()
    for node in nodes:
        real = makers.get(node.inputs[0]) if node.op_type == "QuantizeLinear" else None
        x = real.inputs[0] if real and real.op_type == "DequantizeLinear" else None
        if real is None or x is None or x not in makers or node.outputs[0] not in outputs:
            continue
        operands = (*real.inputs[1:], *node.inputs[1:])
        numbers = [None if value is None else value.data for value in operands]
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        is_copy = all(a is not None and b is not None and np.array_equal(a, b) for a, b in pairs)
        y = node.outputs[0]
        # Integers of 4 bits are cast to 8 bits before they are dequantized: a copy has fewer bits.
        has_type = x in types and y in types and types[x][0] is types[y][0]
        if is_copy and has_type and x not in outputs and x not in merged:
            merged[x] = y
    if not merged:
        return (*nodes,), merged
    copies = {*merged.values()}
    kept = (node for node in nodes if copies.isdisjoint(node.outputs))
    renamed = (
        node._replace(outputs=tuple(merged.get(y, y) for y in node.outputs)) for node in kept
    )
    return tuple(_read_merged(node, merged) for node in renamed), merged


def _have_equal_attributes(a: Node, b: Node) -> bool:
    if a.op_type != "If":
        return a.attributes == b.attributes
    return all(_compute_equal_values(body, b.attributes[key]) for key, body in a.attributes.items())


def _compute_equal_values(a: Body, b: Body) -> bool:
    """Return whether two graphs compute the same values, and no tensors of the file."""
    if a.tensors or b.tensors:
        return False
    _, merged = merge_equal_nodes((*a.nodes, *b.nodes), ())
    of_a, of_b = ([merged.get(value, value) for value in body.outputs] for body in (a, b))
    return of_a == of_b


def _read_merged(node: Node, merged: Merged) -> Node:
    """Return a node that reads the values that stay, in its nested graphs too."""
    bodies = {key: _merge_inside(body, merged) for key, body in find_bodies(node).items()}
    node = node.with_inputs(merged)
    return node._replace(attributes={**node.attributes, **bodies}) if bodies else node


def _merge_inside(body: Body, known: Merged) -> Body:
    outputs = tuple(known.get(value, value) for value in body.outputs)
    nodes, merged = merge_equal_nodes(body.nodes, outputs, known)
    tensors = rename_ports(body.tensors, merged)
    return body._replace(nodes=nodes, outputs=outputs, tensors=tensors)


def rename_ports(ports: Sequence[Port], merged: Merged) -> tuple[Port, ...]:
    """Return tensors with the values that stay."""
    if not merged:
        return (*ports,)
    return tuple(port._replace(value=merged.get(port.value, port.value)) for port in ports)


_STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}  # the number of initial states
_FIRST = 5  # the index of the first initial state among the inputs
_KEEPS = ("Reshape", "Squeeze", "Unsqueeze", "Identity")


def omit_zero_states(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes without initial states that are 0 for each batch.

    Nodes that nothing reads any more are kept.
    """
    if not any(node.op_type in _STATES for node in nodes):
        return tuple(nodes)
    makers = find_makers(nodes)
    return tuple(_omit_states(node, makers) for node in nodes)


def _omit_states(node: Node, makers: Mapping[Value | None, Node]) -> Node:
    end = _FIRST + _STATES.get(node.op_type, 0)
    states, rest = node.inputs[_FIRST:end], node.inputs[end:]
    if node.op_type not in _STATES or not all(_is_zero(state, makers) for state in states):
        return node
    omitted = [None] * len(states) if rest else []
    return node._replace(inputs=(*node.inputs[:_FIRST], *omitted, *rest))


def _is_zero(value: Value | None, makers: Mapping[Value | None, Node]) -> bool:
    """Return whether a value is zeros of a computed shape."""
    node = makers.get(value) if value else None
    while node and node.op_type in _KEEPS:
        node = makers.get(node.present[0])
    if not node or node.op_type != "Expand":
        return False
    data = node.present[0].data
    return data is not None and not data.any()
