"""Fuse operators that are one convolution together.

`fuse_dilated_convolutions`: SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND, as early
TensorFlow wrote a dilated convolution, become one convolution whose dilation is the block size and
whose padding is the paddings minus the crops, if:

1. the convolution has padding VALID, strides 1 and dilations 1, and does not quantize float data,
   which it would do image by image;
2. both block sizes are the same two constants, and no crop is larger than its padding;
3. the integers of inputs and outputs have the same scale;
4. nothing else reads the tensors between the convolution and BATCH_TO_SPACE_ND.

`fuse_pads_into_convolutions`: PAD, or PADV2 with zeros, before a convolution or MAX_POOL_2D becomes
its padding, if:

1. the operator has padding VALID, and MAX_POOL_2D reads floats that are not
   negative, with a number that is no padding in each window;
2. PAD pads height and width only, and keeps the scale;
3. the operator reads the output of PAD, or a TRANSPOSE of it, as in networks made by PyTorch.

Runtimes do the second fusion for float models, but not for quantized models.
"""

from dataclasses import replace
from itertools import chain

from tflite2onnx.graph import Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.passes.operands import CONVOLUTIONS, find_positive, has_unit_steps, is_float
from tflite2onnx.passes.patterns.matching import Activated, Match, Named, OneOf, Shared, any_of
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_like
from tflite2onnx.quantization.storage import same_scale

_POOL = "MAX_POOL_2D"
# SPACE_TO_BATCH_ND and PAD may have other readers.
_SPREAD = Shared(("SPACE_TO_BATCH_ND", "x", "blocks#", "pads#"))
_DILATED = Activated(any_of(CONVOLUTIONS, Named("images", _SPREAD), ...))
_PADDED = Named("padded", OneOf(("PAD", "x", "pads#"), ("PADV2", "x", "pads#", "value#")))
_WIDE = Named("wide", Shared(OneOf(_PADDED, ("TRANSPOSE", _PADDED, "order#"))))


@rule(
    "convolution between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND",
    "CONV_2D, DEPTHWISE_CONV_2D",
    ("BATCH_TO_SPACE_ND", _DILATED, "blocks#", "crops#"),
    dtype=None,
)
def fuse_dilated_convolutions(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    (last, middle, *_), x = found.ops, found.x
    alike = same_scale(x, found.tensors["images"]) and same_scale(middle.outputs[0], found.output)
    if not alike or not may_be_dilated(middle):
        return "the convolution must have strides and dilations 1, no padding, and one scale"
    pads, crops = found.list_integers("pads#"), found.list_integers("crops#")
    top, bottom, left, right = (a - b for a, b in zip(pads, crops, strict=True))
    if min(top, bottom, left, right) < 0:
        return "no crop must be larger than its padding"
    height, width = found.list_integers("blocks#")
    dilated = middle.with_options(dilation_h_factor=height, dilation_w_factor=width)
    made = middle.read_made(WindowOptions).replace(pads=(top, left, bottom, right))
    return replace(dilated, inputs=(x, *middle.inputs[1:]), outputs=last.outputs, made=made)


def may_be_dilated(op: Op) -> bool:
    """Return whether an operator is a convolution that may get a dilation: condition 1."""
    plain = op.is_builtin(*CONVOLUTIONS) and op.options.get("padding") == "VALID"
    plain = plain and not any(op.read_made(WindowOptions).pads)
    return plain and has_unit_steps(op) and not is_hybrid(op.operand(0), op.operand(1))


@rule(
    "PAD before a convolution, or before a maximum of positive numbers",
    "CONV_2D, DEPTHWISE_CONV_2D, MAX_POOL_2D",
    Activated(any_of((*CONVOLUTIONS, _POOL), _WIDE, ...)),
    dtype=None,
)
def fuse_pads_into_convolutions(found: Match) -> tuple[Op, ...] | str:
    """Return a convolution that reads the input of the PAD before it, if it can.

    If there is a TRANSPOSE between the two, a TRANSPOSE of the input of PAD comes first.
    """
    op, x, wide = found.last, found.x, found.tensors["wide"]
    order, edges = found.list_integers("order#"), found.list_integers("pads#")
    batch, rows, columns, channels = (edges[2 * i : 2 * i + 2] for i in order or range(4))
    alike = same_scale(x, found.tensors["padded"]) and same_scale(x, wide)
    if not alike or any(batch + channels) or not _pads_zeros(found):
        return "PAD must add zeros to height and width only, and keep the scale"
    if op.options.get("padding") != "VALID":
        return "the operator must have no padding SAME"
    if op.is_builtin(_POOL) and not _keeps_maxima(found, max(rows), max(columns)):
        return "each window of a maximum must have a number that is no padding, and none below 0"
    made, more = op.read_made(WindowOptions), chain(*zip(rows, columns, strict=True))
    pads = tuple(a + b for a, b in zip(made.pads or (0, 0, 0, 0), more, strict=True))
    padded = replace(op, made=made.replace(pads=pads))
    if not order:
        return (padded.with_inputs({wide: x}),)
    symbols = {axis: x.symbols[i] for axis, i in enumerate(order) if i in x.symbols}
    y = replace(make_like(x, "transpose", tuple(x.shape[i] for i in order)), symbols=symbols)
    turn = found.graph.producers[wide]
    return replace(turn, inputs=(x, turn.inputs[1]), outputs=(y,)), padded.with_inputs({wide: y})


def _keeps_maxima(found: Match, rows: int, columns: int) -> bool:
    """Return whether zeros around an image change the maximum of no window: condition 1."""
    x, o = found.x, found.last.options
    fits = rows < o.get("filter_height", 0) and columns < o.get("filter_width", 0)
    return fits and is_float(x) and x in found.analyze(find_positive)


def _pads_zeros(found: Match) -> bool:
    """Return whether PAD, or PADV2 with a constant that stands for 0, was found."""
    value = found.tensors.get("value#")
    zero = value.quantization.zero_point[0] if value and value.quantization else 0
    return found.number("value#", 0) == zero
