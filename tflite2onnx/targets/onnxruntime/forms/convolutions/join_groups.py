"""Convolutions of the parts of an image become one convolution with groups.

TensorFlow's converter writes a convolution with groups, which its runtime lacks on a CPU, as

    CONCATENATION(CONV_2D(part, filters, biases) for each part of SPLIT(image))

The depthwise convolutions of YOLO 11 have 128 such parts. One convolution computes the same sums.
docs/performance.md has what it saves.

Networks of wake words convolve the parts depthwise, by windows of several heights, after a SLICE of
each part. All windows get the largest height: rows of zeros take the place of the sliced rows.

1. SPLIT and CONCATENATION are along the channels, and have all parts in one sequence; no other
   operator reads a part or the result of a convolution.
2. The convolutions differ in the constant filters and biases only. CONV_2D have as many filters;
   before DEPTHWISE_CONV_2D without padding a SLICE may take some rows of a part, if the larger
   windows are not expected to take longer.
3. All parts have one quantization, and so have all results. Floats are not rounded at run time:
   LiteRT rounds each part, or each pixel of it, in a scale of its own.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.graph import NO_OP, Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.op.vision.conv import Conv2D
from tflite2onnx.passes.operands import find_data, find_taken_ranges
from tflite2onnx.passes.patterns.join_parts import find_axis
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_constant
from tflite2onnx.quantization.storage import same_quantization
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Times, estimate_convolution
from tflite2onnx.tensor import Quantization, Tensor


@rule(
    "convolutions of all parts of SPLIT along the channels, joined again",
    "CONV_2D with groups, or DEPTHWISE_CONV_2D",
    ("CONCATENATION", ...),
    dtype=None,
    needs=("SPLIT", "SPLIT_V"),
)
def join_groups(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    op, graph = found.last, found.graph
    convs = [graph.producers.find(tensor) for tensor in op.present]
    first, channels = convs[0], found.output.rank - 1
    alike = all(c.code == first.code and _settings(c) == _settings(first) for c in convs)
    if not first.is_builtin("CONV_2D", "DEPTHWISE_CONV_2D") or not alike or _rounds_data(first):
        return "the parts must be read by convolutions with the same options, and not be rounded"
    slices = [graph.producers.find(c.operand(0)) for c in convs]
    slices = [each if each.is_builtin(*SLICES) else NO_OP for each in slices]
    parts = tuple((s if s.inputs else c).operand(0) for s, c in zip(slices, convs, strict=True))
    split = graph.producers.find(parts[0])
    is_split = split.is_builtin("SPLIT", "SPLIT_V")
    if not is_split or {find_axis(split), find_axis(op)} != {channels}:
        return "the channels of SPLIT must be joined"
    if parts != split.outputs or op.activation != "NONE":
        return "all parts must be joined in their sequence"
    inner = {*split.outputs, *(c.operand(0) for c in convs), *op.present}
    if not all(graph.readers.are_among({*slices, *convs, op}, t) for t in inner):
        return "another operator reads a part"
    whole = find_data(split), found.output
    joined = _join_operands(convs, slices, whole)
    if isinstance(joined, str):
        return joined
    return replace(first, inputs=(whole[0], *joined), outputs=whole[1:])


def _join_operands(
    convs: Sequence[Op], slices: Sequence[Op], whole: tuple[Tensor, Tensor]
) -> Sequence[Tensor] | str:
    """Return the filters and biases of one convolution, or why there are none."""
    is_depthwise = convs[0].code == "DEPTHWISE_CONV_2D"
    filters = _join_constants([*map(_pad_window, convs, slices)], 3 if is_depthwise else 0)
    others = [
        _join_constants(biases) for biases in zip(*(c.inputs[2:] for c in convs), strict=True)
    ]
    known = [joined for joined in (filters, *others) if joined]
    images = [(c.operand(0), c.operand(1), c.outputs[0]) for c in convs]
    same = all(
        _have_same_scale(x, whole[0]) and _have_same_scale(y, whole[1]) for x, _, y in images
    )
    if filters is None or None in others or not same:
        return "filters and biases must be constants of one type, and all parts have the same scale"
    if not is_depthwise and len({w.shape for _, w, _ in images}) > 1:
        return "the parts must have as many filters"
    if any(each.inputs for each in slices):
        # The times of float kernels stand for those of integers, which have no table.
        several, one = (
            Times(*(sum(_estimate(block, *image) for image in each) for block in FACTORS))
            for each in (images, [(whole[0], filters, whole[1])])
        )
        if loss := one.explain_loss(several):
            return loss
    return known


def _estimate(block: int, x: Tensor, w: Tensor, y: Tensor) -> float:
    return estimate_convolution(block, (1, *w.shape[1:3]), x.shape, y.shape)


def _pad_window(conv: Op, part: Op) -> Tensor | None:
    """Return filters with rows of zeros in place of the rows that SLICE leaves out of a part."""
    w = conv.operand(1)
    if not part.inputs:
        return w
    x, window = part.operand(0), conv.options
    taken, options = find_taken_ranges(part), (window.padding, window.dilation_h_factor)
    kept = taken.get(1, range(x.shape[1]))
    is_plain = options == ("VALID", 1) and kept.step == 1
    is_plain &= w.has_data and (w.quantization is None or w.is_symmetric)
    if conv.code != "DEPTHWISE_CONV_2D" or not is_plain or taken.keys() - {1} or 1 in x.symbols:
        return None
    if any(conv.read_made(WindowOptions).pads):
        return None
    rows = (kept.start, x.shape[1] - kept.stop)
    padded = make_constant(f"{w.name}/rows", np.pad(w.values, ((0, 0), rows, (0, 0), (0, 0))), w)
    return replace(padded, quantization=w.quantization)


def _rounds_data(op: Op) -> bool:
    """Return whether a convolution rounds its data, or is the reason why others do not."""
    operator = find_operator(op)
    pixels = isinstance(operator, Conv2D) and operator.is_hybrid and operator.quantizes_pixels
    return pixels or op.read_made(WindowOptions).rounds_data


def _settings(op: Op) -> tuple[object, ...]:
    return ({**op.options}, op.made, [x is not None for x in op.inputs])


def _have_same_scale(x: Tensor, y: Tensor) -> bool:
    return x.dtype is y.dtype and same_quantization(x.quantization, y.quantization)


def _join_constants(parts: Sequence[Tensor | None], axis: int = 0) -> Tensor | None:
    """Return the constants one after the other, with the scales of each; None if they differ."""
    known = [part for part in parts if part and part.has_data]
    kinds = {(part.dtype, part.shape[:axis], part.shape[axis + 1 :]) for part in known}
    if len(known) < len(parts) or len(kinds) > 1:
        return None
    first = known[0]
    values = np.concatenate([part.values for part in known], axis)
    joined = make_constant(f"{first.name}/groups", values, first)
    scales = [part.quantization for part in known if part.quantization]
    if not scales:
        return joined
    others = [s for s in scales if s.block_size or (s.per_axis and s.axis != axis)]
    if len(scales) < len(parts) or others:
        return None
    sizes = [part.shape[axis] for part in known]
    scale, zero_point = (
        np.concatenate([np.broadcast_to(*pair) for pair in zip(arrays, sizes, strict=True)])
        for arrays in ([s.scale for s in scales], [s.zero_point for s in scales])
    )
    return replace(joined, quantization=Quantization(scale, zero_point, axis))
