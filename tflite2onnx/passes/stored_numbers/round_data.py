"""Convolutions with float data and integer weights round the data as LiteRT's kernels do.

They get `WindowOptions.rounds_data`: they multiply the real numbers to which an image is quantized.
A network in which each pixel of a convolution has a scale of its own
(`Conv2D.quantizes_pixels`) is not rounded, because the nodes that round pixels take longer than the
convolution, and it differs from LiteRT's network by the rounding of these data anyway.
"""

from dataclasses import replace

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.vision.conv import Conv2D, Convolution
from tflite2onnx.quantization.storage import is_quantized


def round_data(graph: Graph) -> Graph:
    """Return the graph in which the data of convolutions are rounded at run time."""
    convolutions = find_rounding_convolutions(graph)
    if any(isinstance(conv, Conv2D) and conv.quantizes_pixels for conv in convolutions.values()):
        return graph
    return graph.rewrite(lambda op: [_round(op) if op in convolutions else op])


def _round(op: Op) -> Op:
    return replace(op, made=op.read_made(WindowOptions).replace(rounds_data=True))


def find_rounding_convolutions(graph: Graph) -> dict[Op, Convolution]:
    """Return the operators of convolutions with float data and integer weights."""
    operators = {
        op: find_operator(op)
        for op in graph.walk_ops()
        if op.is_builtin("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
        if is_quantized(op.operand(1)) and not any(map(is_quantized, op.outputs))
    }
    return {op: o for op, o in operators.items() if isinstance(o, Convolution) and o.is_hybrid}
