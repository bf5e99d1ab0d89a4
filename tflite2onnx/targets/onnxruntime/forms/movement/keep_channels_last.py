"""RESHAPE of images of 8 bits with channels last, the order in which ONNX Runtime stores them.

This includes the RESHAPE of a dense layer of whole images, and of a mean of all pixels.

The plan expects images with channels first between convolutions, and takes channels first through
RESHAPE, as in the heads of detectors. But ONNX Runtime computes quantized convolutions with
channels last, and moves no Transpose through Reshape. If RESHAPE keeps the channels last, or the
TRANSPOSE before it that puts them first, the Transpose cancels that of the convolution, and scores
stay rows of a pixel: YOLOv8n of 8 bits has 3 Transposes after ONNX Runtime's optimizer in place of
8, and SSD MobileNet v2 FPN has 2 in place of 8.

An image of one channel, as normalizations of groups make of an image, stays as planned: its
Transpose moves nothing. With the channel last, the mean over the first and the last axis of [128,
96, 1] takes 43 microseconds, and as planned, over the first axes of [128, 1, 96], 10. A reader of
licence plates with eight such means takes 0.80 of the time as planned (processor time of both in
turns, on one thread of an AMD EPYC, family 25, model 17, with VNNI).
"""

from dataclasses import replace
from functools import partial

from tflite2onnx.graph import Graph, Op
from tflite2onnx.passes.operands import normalize_axes
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.planning import has_channels_first
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions

_BYTE = 8  # bits
_IMAGE = 4  # axes


def keep_channels_last(graph: Graph) -> Graph:
    """Return the graph with operators that keep the channels of images last."""
    return graph.rewrite(partial(_keep_last, graph))


def _keep_last(graph: Graph, op: Op) -> list[Op]:
    if not op.is_builtin("FULLY_CONNECTED", "MEAN", "RESHAPE", "TRANSPOSE"):
        return [op]
    x, y = op.operand(0), op.outputs[0]
    is_image = is_quantized(x) and x.dtype.bits == _BYTE and _IMAGE in (x.rank, y.rank)
    is_image = is_image and (x.rank != y.rank or 1 not in (x.shape[-1], y.shape[-1]))
    # Softmax stands between two Reshapes (`_keep_softmax_rows`), through which no Transpose moves.
    is_image = is_image and not graph.producers.find(x).is_builtin("SOFTMAX")
    if not is_image or not (has_channels_first(graph, x) or has_channels_first(graph, y)):
        return [op]
    reader, made = graph.readers.find_only_reader(y), op.read_made(MovedOptions)
    changed: list[Op] | str
    if op.code == "FULLY_CONNECTED":
        changed = _flatten_image(op)
    elif op.code == "MEAN":
        changed = _flatten_mean(op, reader)
    elif made.joins_columns or not (op.code == "RESHAPE" or reader.is_builtin("RESHAPE")):
        changed = "RESHAPE alone must read it, and no convolution of pieces of pixels"
    else:
        changed = [_mark(op)]
    if isinstance(changed, str):
        log_loss(op, "the same with channels last", changed)
        return [op]
    return changed


def _mark(op: Op) -> Op:
    keeps_shape = op.read_made(MovedOptions).keeps_shape
    return replace(op, made=MovedOptions(keeps_shape=keeps_shape, keeps_last=True))


def _flatten_image(op: Op) -> list[Op] | str:
    """Return RESHAPE and a layer of rows in place of a dense layer of whole images, or why not."""
    x, weights = op.operand(0), op.operand(1)
    features = weights.elements // weights.shape[0]
    fits = weights.has_data and x.elements == x.shape[0] * features
    if not fits or op.outputs[0].rank == x.rank:
        return "the weights must be constant, and each row be a whole image"
    rw = Rewriter(op)
    rows = rw.reshape(x, (x.shape[0], features), like=x, name="rows")
    flat = weights.reshape_constant((weights.shape[0], features))
    return [*map(_mark, rw.ops), op.with_inputs({x: rows, weights: flat})]


def _flatten_mean(op: Op, reader: Op) -> list[Op] | str:
    """Return MEAN to one pixel, and RESHAPE, in place of MEAN to a row of features, or why not."""
    x, axes, y = op.operand(0), op.operand(1), op.outputs[0]
    is_row = y.rank != x.rank and normalize_axes(axes.values, x.rank) == {1, 2}
    if not is_row or not reader.is_builtin("FULLY_CONNECTED"):
        return "a dense layer alone must read the means over height and width"
    rw, size = Rewriter(op), (x.shape[0], 1, 1, x.shape[3])
    pixel = rw.op("MEAN", x, axes, like=y, name="pixel", shape=size, keep_dims=True)
    rw.reshape(pixel, output=y)
    return [rw.ops[0], _mark(rw.ops[1])]
