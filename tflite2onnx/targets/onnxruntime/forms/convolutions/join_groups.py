"""Convolutions of the parts of an image become one convolution with groups.

TensorFlow's converter writes a convolution with groups, which its runtime lacks on a CPU, as

    CONCATENATION(CONV_2D(part, filters, biases) for each part of SPLIT(image))

The depthwise convolutions of YOLO 11 have 128 such parts. One convolution computes the same sums.
docs/performance.md has what it saves.

1. SPLIT and CONCATENATION are along the channels, and have all parts in one sequence; no other
   operator reads a part or the result of a convolution.
2. The convolutions differ in the constant filters and biases only, and have as many filters.
3. All parts have one quantization, and so have all results. Floats are not rounded at run time:
   LiteRT rounds each part, or each pixel of it, in a scale of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.graph import NO_OP, Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.vision.conv import Conv2D
from tflite2onnx.passes.operands import find_data
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_constant
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.tensor import Quantization, Tensor


@rule(
    "convolutions of all parts of SPLIT along the channels, joined again",
    "CONV_2D with groups",
    ("CONCATENATION", ...),
    dtype=None,
    needs=("SPLIT",),
)
def join_groups(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    op, graph = found.last, found.graph
    convs = [graph.producers.find(tensor) for tensor in op.present]
    first, channels = convs[0], found.output.rank - 1
    split = graph.producers.find(first.operand(0)) if first.inputs else NO_OP
    if not split.is_builtin("SPLIT") or {find_axis(split), find_axis(op)} != {channels}:
        return "the channels of SPLIT must be joined"
    parts = split.outputs
    if parts != tuple(c.operand(0) for c in convs if c.inputs) or op.activation != "NONE":
        return "all parts must be joined in their sequence"
    if not all(graph.readers.are_among({*convs, op}, t) for t in (*parts, *op.present)):
        return "another operator reads a part"
    alike = all(c.is_builtin("CONV_2D") and _settings(c) == _settings(first) for c in convs)
    if not alike or _rounds_data(first):
        return "the parts must be read by CONV_2D with the same options, and not be rounded"
    image, whole = find_data(split), found.output
    pairs = [(image, part) for part in parts] + [(whole, tensor) for tensor in op.present]
    constants = [_join_constants([c.inputs[i] for c in convs]) for i in range(1, len(first.inputs))]
    if None in constants or not all(_have_same_scale(*pair) for pair in pairs):
        return "filters and biases must be constants of one type, and all parts have the same scale"
    return replace(first, inputs=(image, *constants), outputs=(whole,))


def _rounds_data(op: Op) -> bool:
    """Return whether a convolution rounds its data, or is the reason why others do not."""
    operator = find_operator(op)
    pixels = isinstance(operator, Conv2D) and operator.is_hybrid and operator.quantizes_pixels
    return pixels or op.read_made(WindowOptions).rounds_data


def _settings(op: Op) -> tuple[object, ...]:
    return ({**op.options}, op.made, [x is not None for x in op.inputs])


def _have_same_scale(x: Tensor, y: Tensor) -> bool:
    return x.dtype is y.dtype and same_quantization(x.quantization, y.quantization)


def _join_constants(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Return the constants one after the other, with the scales of each; None if they differ."""
    known = [part for part in parts if part and part.has_data]
    if len(known) < len(parts) or len({(part.shape, part.dtype) for part in known}) > 1:
        return None
    first = known[0]
    values = np.concatenate([part.values for part in known])
    joined = make_constant(f"{first.name}/groups", values, first)
    scales = [part.quantization for part in known if part.quantization]
    if not scales:
        return joined
    if len(scales) < len(parts) or any(scale.axis or scale.block_size for scale in scales):
        return None
    rows = first.shape[:1]
    scale, zero_point = (
        np.concatenate([np.broadcast_to(each, rows) for each in arrays])
        for arrays in ([s.scale for s in scales], [s.zero_point for s in scales])
    )
    return replace(joined, quantization=Quantization(scale, zero_point))
