"""RESHAPE of images of 8 bits with channels last, the order in which ONNX Runtime stores them.

The plan expects images with channels first between convolutions, and takes channels first through
RESHAPE, as in the heads of detectors. But ONNX Runtime computes quantized convolutions with
channels last, and moves no Transpose through Reshape. If RESHAPE keeps the channels last, or the
TRANSPOSE before it that puts them first, the Transpose cancels that of the convolution, and scores
stay rows of a pixel: YOLOv8n of 8 bits has 3 Transposes after ONNX Runtime's optimizer in place of
8, and SSD MobileNet v2 FPN has 2 in place of 8.
"""

from dataclasses import replace

from tflite2onnx.graph import Op
from tflite2onnx.passes.patterns.matching import Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.planning import list_channels_first
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.operators.reshape import MovedOptions

_BYTE = 8  # bits
_IMAGE = 4  # axes
# Their images have channels first in any plan. Most graphs need no plan for this form.
_WRITES_FIRST = ("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D")


def _keep_last(found: Match) -> Op | str:
    op = found.last
    x, y = op.operand(0), op.outputs[0]
    made = op.read_made(MovedOptions)
    if made.joins_columns or made.keeps_last:
        return "a form has made it"
    if not is_quantized(x) or x.dtype.bits != _BYTE or _IMAGE not in (x.rank, y.rank):
        return "the elements must be of 8 bits, and one side an image"
    if op.code == "TRANSPOSE" and not found.graph.readers.find_only_reader(y).is_builtin("RESHAPE"):
        return "only a RESHAPE must read it"
    is_first = x.rank == _IMAGE and found.graph.producers.find(x).is_builtin(*_WRITES_FIRST)
    if not is_first and found.analyze(list_channels_first).isdisjoint((x, y)):
        return "no image has channels first"
    return replace(op, made=MovedOptions(keeps_shape=made.keeps_shape, keeps_last=True))


keep_channels_last = Rules(
    Rule(
        "RESHAPE of an image of 8 bits",
        "RESHAPE with channels last",
        ("RESHAPE", ...),
        _keep_last,
        floats=False,
    ),
    Rule(
        "TRANSPOSE of an image of 8 bits before RESHAPE",
        "TRANSPOSE with channels last",
        ("TRANSPOSE", ...),
        _keep_last,
        floats=False,
    ),
)
