"""Constants that several layers read with scales of their own, as SSDs share a predictor's weights.

Compilers of NPUs know one scale of each tensor, and read the constant with the first one.
"""

from collections.abc import Iterator, Sequence

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.nodes import Node, Value


def separate_constants(g: Builder, nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield nodes that dequantize no constant with two scales: it is copied."""
    made: dict[Value, dict[tuple[Value | None, ...], Value]] = {}
    for node in nodes:
        x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if x is None or x.data is None or x.dtype is None:
            yield node
            continue
        copies = made.setdefault(x, {node.inputs[1:]: x})
        if node.inputs[1:] not in copies:
            copies[node.inputs[1:]] = g.make_separate_constant(x.data, x.dtype, x.name)
        yield node._replace(inputs=(copies[node.inputs[1:]], *node.inputs[1:]))
