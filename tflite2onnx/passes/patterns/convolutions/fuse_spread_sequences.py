"""RESHAPE and TRANSPOSE that spread a sequence over the batch become SPACE_TO_BATCH_ND, and back.

TensorFlow spreads a sequence of d n samples over d sequences, one for each offset, to convolve it
with the dilation d. With a batch of 1, exporters spell that out:

    PAD, RESHAPE [1, d n, C] to [n, d, C], TRANSPOSE to [d, n, C], RESHAPE, CONV_2D
    TRANSPOSE [d, 1, m, C] to [m, d, C, 1], RESHAPE to [1, d m, C], SLICE

The first line becomes SPACE_TO_BATCH_ND, whose paddings are those of PAD; the second one becomes
BATCH_TO_SPACE_ND, whose crops are those of SLICE. Both then become a dilation of the convolution
(`reshape_sequences`, `fuse_convolutions`). They are replaced if

1. all tensors have one type and scale, with sizes that are known, and the batch is 1;
2. a CONV_2D or DEPTHWISE_CONV_2D alone reads or makes the spread sequences, by a RESHAPE;
3. PAD and SLICE change the number of samples only, by constants.

A network of 16 convolutions, 12 of them dilated, has 37 nodes instead of 130.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.passes.normalise import eliminate_dead_operators
from tflite2onnx.passes.operands import find_order, find_producer
from tflite2onnx.passes.patterns.convolutions.fuse_convolutions import CONVOLUTIONS
from tflite2onnx.passes.rewriter import Rewriter, make_int32
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Array, Shape, Tensor

_SEQUENCE = 3  # axes


def fuse_spread_sequences(graph: Graph) -> Graph:
    """Return the graph with SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND where they are spelled out."""
    changed = graph.rewrite(lambda op: _spread(op, graph) or _gather(op, graph) or [op])
    # `reshape_sequences` must not find the old readers of a convolution.
    return graph if changed is graph else eliminate_dead_operators(changed)


def _spread(op: Op, graph: Graph) -> list[Op]:
    """Return SPACE_TO_BATCH_ND in place of a TRANSPOSE, [] if the conditions do not hold."""
    if find_order(op) != (1, 0, 2) or not _is_spread_for_convolution(op.outputs[0], graph):
        return []
    x, y = find_producer(op.operand(0), graph, "RESHAPE").operand(0), op.outputs[0]
    blocks, count, channels = y.shape
    if x.shape != (1, blocks * count, channels) or not _are_fixed(x, y):
        return []
    x, pads = _read_pads(find_producer(x, graph, "PAD"), y) or (x, np.zeros((1, 2), np.int32))
    rw = Rewriter(op)
    rw.op("SPACE_TO_BATCH_ND", x, *_make_parameters(y, blocks, pads), output=y)
    return rw.ops


def _make_parameters(y: Tensor, blocks: int, edges: Array) -> tuple[Tensor, Tensor]:
    """Return the constants of SPACE_TO_BATCH_ND or BATCH_TO_SPACE_ND: the block, and the edges."""
    return make_int32(f"{y.name}/blocks", [blocks]), make_int32(f"{y.name}/edges", edges)


def _is_spread_for_convolution(tensor: Tensor, graph: Graph) -> bool:
    reader = graph.readers.find_only_reader(tensor)
    return reader.is_builtin("RESHAPE") and graph.readers.find_only_reader(
        reader.outputs[0]
    ).is_builtin(*CONVOLUTIONS)


def _read_pads(op: Op, y: Tensor) -> tuple[Tensor, Array] | None:
    """Return the input of a PAD of samples, and its pads, if the input has the scale of y."""
    match op.inputs:
        case [Tensor(rank=3) as x, Tensor(data=np.ndarray() as pads)] if _are_fixed(x, y):
            only_samples = pads.shape == (_SEQUENCE, 2) and not np.any(pads[[0, 2]])
            return (x, pads[1:2]) if only_samples else None
    return None


def _gather(op: Op, graph: Graph) -> list[Op]:
    """Return BATCH_TO_SPACE_ND in place of a RESHAPE, or of a SLICE behind it."""
    last = find_producer(op.operand(0), graph, "RESHAPE") if op.is_builtin("SLICE") else op
    turn = find_producer(last.operand(0), graph, "TRANSPOSE")
    source = find_producer(turn.operand(0), graph, *CONVOLUTIONS)
    if not last.is_builtin("RESHAPE") or source is NO_OP:
        return []
    image, sequence, y = source.outputs[0], last.outputs[0], op.outputs[0]
    if not _are_fixed(image, sequence, y) or not _interleaves(image, turn, sequence.shape):
        return []
    crops = np.zeros((1, 2), np.int32) if op is last else _read_crops(op)
    if not crops.size:
        return []
    rw = Rewriter(op)
    count = image.shape[0]
    spread = (count, sequence.shape[1] // count, image.shape[3])
    x = rw.reshape(image, spread, like=y, name="spread")
    rw.op("BATCH_TO_SPACE_ND", x, *_make_parameters(y, count, crops), output=y)
    return rw.ops


def _interleaves(image: Tensor, turn: Op, shape: Shape) -> bool:
    """Return whether a TRANSPOSE puts the sequences of a batch, which are images, side by side."""
    if image.rank != 4 or 1 not in image.shape[1:3]:
        return False
    order = find_order(turn)
    samples = 2 if image.shape[1] == 1 else 1
    long = [axis for axis in order if axis in {0, samples, 3}]
    count, channels = image.shape[0], image.shape[3]
    return long == [samples, 0, 3] and shape == (1, count * image.shape[samples], channels)


def _read_crops(op: Op) -> Array:
    """Return the crops of a SLICE of samples, empty for other ones."""
    x, begin, y = op.operand(0), op.operand(1).values, op.outputs[0]
    if begin.shape != (_SEQUENCE,) or y.rank != _SEQUENCE:
        return np.empty(0)
    if begin[0] or begin[2] or (y.shape[0], y.shape[2]) != (x.shape[0], x.shape[2]):
        return np.empty(0)
    first = int(begin[1])
    return np.array([[first, x.shape[1] - first - y.shape[1]]], np.int32)


def _are_fixed(x: Tensor, *others: Tensor) -> bool:
    """Return whether sizes are known, and equal stored elements stand for equal numbers."""
    alike = all(t.dtype is x.dtype and same_scale(x, t) for t in others)
    return alike and not any(t.symbols for t in (x, *others))
