"""Two Reshapes before an output, which part it from what computes it.

Compilers of NPUs join nodes that move elements with what computes them, or read an output in other
nodes. The Reshapes change no number.
"""

from collections.abc import Iterator

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import Node, Value
from tflite2onnx.tensor import Shape


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
