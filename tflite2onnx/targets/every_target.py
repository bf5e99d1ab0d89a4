"""Passes over nodes that every target has: ONNX Runtime runs files for other runtimes as well.

`keep_float_weights`: products of dequantized data and float weights, whose results are quantized
again. ONNX Runtime 1.22 and newer round the weights of such a Conv, ConvTranspose or Gemm to int8,
with one scale for all channels (weight_bias_quantization.cc): 7 % of the results differ by a step,
and some networks are wrong by 30 steps. Weights that are folded at load are such weights, too. A
Gemm is left alone if its bias has two axes. A convolution is left alone if its data have more than
one scale: DequantizeLinear with a scale for each index of an axis, all of them equal, gives
the same data. Before opset 13 this node becomes Cast, Sub and Mul, and weights with a scale for
each channel are float weights, too. Data of symmetric integers keep one scale, because the runtimes
that need these integers take no other.

`share_copied_outputs`: an output that copies a computed quantized tensor, by DequantizeLinear and
QuantizeLinear of one scale. ONNX Runtime before 1.31 removes these two nodes without renaming the
tensor for its other readers, and refuses the model (qdq_final_cleanup.cc).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, find_makers, find_readers
from tflite2onnx.builder.node_passes import NodePass, Rewritten
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.builder.opsets import ORDINARY_OPSET
from tflite2onnx.builder.rewrites import read_merged
from tflite2onnx.tensor import DType

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
# ONNX Runtime moves DequantizeLinear after these nodes, and QuantizeLinear before them.
_MOVES = ("MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
# ONNX Runtime fuses these nodes into the product before them.
_FUSED = ("Add", "Clip", "Mul", "Relu")
_ENDS = ("DequantizeLinear", "QuantizeLinear")


def keep_float_weights(
    g: Builder, nodes: Sequence[Node], results: Sequence[Value]
) -> tuple[Node, ...]:
    """Return nodes in which such products have another bias, or data of several equal scales."""
    if not {node.op_type for node in nodes}.issuperset(_ENDS):
        return tuple(nodes)
    makers, readers, constants = find_makers(nodes), find_readers(nodes), _find_constants(g, nodes)
    kept: list[Node] = []
    for node in nodes:
        is_product = node.op_type in _PRODUCTS and node.present[1] in constants
        is_rounded = is_product and _is_quantized_again(node.outputs[0], readers, results)
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


def share_copied_outputs(g: Builder, nodes: Sequence[Node], results: Sequence[Value]) -> Rewritten:
    """Return nodes that read such an output in place of the tensor, and the tensors' outputs."""
    makers, merged = find_makers(nodes), dict[Value, Value]()
    for node in nodes:
        real = makers.get(node.inputs[0]) if node.op_type == "QuantizeLinear" else None
        x = real.inputs[0] if real and real.op_type == "DequantizeLinear" else None
        if real is None or x is None or x not in makers or node.outputs[0] not in results:
            continue
        operands = (*real.inputs[1:], *node.inputs[1:])
        numbers = [None if value is None else value.data for value in operands]
        half = len(numbers) // 2
        pairs = zip(numbers[:half], numbers[half:], strict=True)
        is_copy = all(a is not None and b is not None and np.array_equal(a, b) for a, b in pairs)
        y = node.outputs[0]
        # Integers of 4 bits are cast to 8 bits before they are dequantized: a copy has fewer bits.
        has_type = x in g.types and y in g.types and g.types[x][0] is g.types[y][0]
        if is_copy and has_type and x not in results and x not in merged:
            merged[x] = y
    if not merged:
        return Rewritten((*nodes,))
    copies = {*merged.values()}
    kept = (node for node in nodes if copies.isdisjoint(node.outputs))
    renamed = (
        node._replace(outputs=tuple(merged.get(y, y) for y in node.outputs)) for node in kept
    )
    return Rewritten(tuple(read_merged(node, merged) for node in renamed), merged)


PASSES: tuple[NodePass, ...] = (
    # Both look for QuantizeLinear after nodes that a target may replace.
    keep_float_weights,
    share_copied_outputs,
)
