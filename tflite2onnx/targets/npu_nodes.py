"""Nodes as compilers of NPUs read them.

`requantize` puts numbers between QuantizeLinear and DequantizeLinear.

`reshape_twice` parts an output from what computes it: compilers join nodes that move elements with
what computes them, or read an output in other nodes. The Reshapes change no number.

`separate_constants` copies constants that several layers read with scales of their own, as SSDs
share a predictor's weights: compilers know one scale of each tensor, and read the constant with the
first one.

`dequantize_moves` puts nodes that move integers between DequantizeLinear and QuantizeLinear, which
compilers refuse otherwise. Recurrent operators move integers of their states.
"""

from collections.abc import Generator, Iterator, Sequence

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.node_passes import Stayed, Yielded, keep
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.targets.rules import QDQ, RESHAPES
from tflite2onnx.tensor import Shape

_MOVES = (*RESHAPES, "Concat", "Gather", "Slice", "Split", "Transpose")


def requantize(
    x: Value, operands: Sequence[Value | None], stored: Value | None = None
) -> Generator[Node, None, Value]:
    """Yield nodes that quantize and dequantize numbers, and return the result.

    `stored` is the value of the integers, if its type must be known.
    """
    stored, real = stored or Value(), Value()
    yield Node("QuantizeLinear", (x, *operands), (stored,), {})
    yield Node("DequantizeLinear", (stored, *operands), (real,), {})
    return real


def reshape_twice(g: Builder, x: Value, node: Node, shape: Shape) -> Iterator[Node]:
    """Yield nodes that reshape real numbers to one row and back, and quantize them as a node.

    Nothing is reshaped if there are no elements, for which Reshape has no -1.
    """
    if 0 in shape:
        yield node._replace(inputs=(x, *node.inputs[1:]))
        return
    flat, stored, real, whole = (Value() for _ in range(4))
    yield Node("Reshape", (x, g.ints([1, -1])), (flat,), {})
    yield node._replace(inputs=(flat, *node.inputs[1:]), outputs=(stored,))
    yield Node("DequantizeLinear", (stored, *node.inputs[1:]), (real,), {})
    yield Node("Reshape", (real, g.ints(shape)), (whole,), {})
    yield node._replace(inputs=(whole, *node.inputs[1:]))


def separate_constants(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Yielded:
    """Yield nodes that dequantize no constant with two scales: it is copied."""
    made: dict[Value, dict[tuple[Value | None, ...], Value]] = {}
    for node in nodes:
        x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if x is None or x.data is None or x.dtype is None:
            yield node
            continue
        copies = made.setdefault(x, {node.inputs[1:]: x})
        if copies.get(node.inputs[1:]) is x:
            yield Stayed(node, "no other scale is read before it")
            continue
        if node.inputs[1:] not in copies:
            copies[node.inputs[1:]] = g.make_separate_constant(x.data, x.dtype, x.name)
        yield node._replace(inputs=(copies[node.inputs[1:]], *node.inputs[1:]))


def dequantize_moves(_: Builder, nodes: Sequence[Node], __: Sequence[Value]) -> Yielded:
    """Yield the nodes; none moves integers whose scale is known, and one for all axes."""
    scales = {
        node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]: node.inputs[1:]
        for node in nodes
        if node.op_type in QDQ and _is_one_number(node.inputs[1])
    }
    for node in nodes:
        count = len(node.inputs) if node.op_type == "Concat" else 1
        data = node.inputs[:count] if node.op_type in _MOVES else ()
        scale = next((scales[x] for x in data if x in scales), None)
        if scale is None or any(x is None or x.data is not None for x in data):
            yield keep(node, _MOVES, "it must move integers of one known scale, no constants")
            continue
        reals = {x: Value() for x in data if x is not None}
        for x, real in reals.items():
            yield Node("DequantizeLinear", (x, *scale), (real,), {})
        made = tuple(Value() for _ in node.outputs)
        yield node.with_inputs(reals)._replace(outputs=made)
        for real, result in zip(made, node.outputs, strict=True):
            yield Node("QuantizeLinear", (real, *scale), (result,), {})
            scales.setdefault(result, scale)


def _is_one_number(scale: Value | None) -> bool:
    return scale is not None and scale.data is not None and scale.data.size == 1
