"""RESHAPE of images of 8 bits with channels last, the order in which ONNX Runtime stores them.

The plan expects images with channels first between convolutions, and takes channels first through
RESHAPE, as in the heads of detectors. But ONNX Runtime computes quantized convolutions with
channels last, and moves no Transpose through Reshape. If RESHAPE keeps the channels last, or the
TRANSPOSE before it that puts them first, the Transpose cancels that of the convolution, and scores
stay rows of a pixel: YOLOv8n of 8 bits has 3 Transposes after ONNX Runtime's optimizer in place of
8, and SSD MobileNet v2 FPN has 2 in place of 8.
"""

from dataclasses import replace
from functools import partial

from tflite2onnx.graph import Graph, Op
from tflite2onnx.planning import has_channels_first
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions

_BYTE = 8  # bits
_IMAGE = 4  # axes


def keep_channels_last(graph: Graph) -> Graph:
    """Return the graph with RESHAPE and TRANSPOSE that keep the channels of images last."""
    return graph.rewrite(partial(_keep_last, graph))


def _keep_last(graph: Graph, op: Op) -> tuple[Op]:
    if not op.is_builtin("RESHAPE", "TRANSPOSE"):
        return (op,)
    x, y, made = op.operand(0), op.outputs[0], op.read_made(MovedOptions)
    is_image = is_quantized(x) and x.dtype.bits == _BYTE and _IMAGE in (x.rank, y.rank)
    is_read = op.code == "RESHAPE" or graph.readers.find_only_reader(y).is_builtin("RESHAPE")
    if made.joins_columns or not (is_image and is_read):
        return (op,)
    if not (has_channels_first(graph, x) or has_channels_first(graph, y)):
        return (op,)
    return (replace(op, made=MovedOptions(keeps_shape=made.keeps_shape, keeps_last=True)),)
