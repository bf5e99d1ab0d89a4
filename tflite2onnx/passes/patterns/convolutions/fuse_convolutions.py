"""Fuse operators that are one convolution together.

`fuse_dilated_convolutions`: early TensorFlow wrote a dilated convolution as SPACE_TO_BATCH_ND (one
image for each offset of the pixels within a block), a convolution of these images, and
BATCH_TO_SPACE_ND. The three become one convolution whose dilation is the block size and whose
padding is the paddings minus the crops, if:

1. the convolution has padding VALID, strides 1 and dilations 1, and does not quantize float data,
   which it would do image by image;
2. both block sizes are the same two constants, and no crop is larger than its padding;
3. the integers of inputs and outputs have the same scale, and height and width are fixed;
4. nothing else reads the tensors between the convolution and BATCH_TO_SPACE_ND.

`fuse_pads_into_convolutions`: PAD, or PADV2 with zeros, before a convolution becomes its padding,
if:

1. the convolution has padding VALID or explicit pads;
2. PAD pads height and width only, by constants that are not negative, and keeps the scale;
3. the convolution reads the output of PAD, or a TRANSPOSE of it, as in networks made by PyTorch.

ONNX Runtime does the second fusion for float models, but not for quantized models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.passes.rewriter import new_tensor
from tflite2onnx.quantization.storage import same_scale
from tflite2onnx.tensor import Tensor

CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_IMAGE = 4  # axes
_INPUTS = 3  # of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: data, blocks, paddings or crops


def fuse_dilated_convolutions(graph: Graph) -> Graph:
    """Return the graph with one convolution in place of the three operators."""
    every = list(graph.every_op())
    producers: dict[Tensor | None, Op] = {t: op for op in every for t in op.outputs[:1]}
    fused: dict[Op, Op | None] = {}
    for op in every:
        convolution = (
            _fuse_convolution(op, producers) if op.is_builtin("BATCH_TO_SPACE_ND") else None
        )
        # SPACE_TO_BATCH_ND stays: it may have other readers.
        if convolution is not None and graph.readers.find_only_reader(op.inputs[0]) is op:
            fused[op] = convolution
            fused[producers[op.inputs[0]]] = None
    return graph.rewrite(lambda op: [each for each in (fused.get(op, op),) if each is not None])


def _fuse_convolution(last: Op, producers: Mapping[Tensor | None, Op]) -> Op | None:
    """Return the dilated convolution that ends in BATCH_TO_SPACE_ND, None if there is none."""
    whole = last.outputs and len(last.inputs) == _INPUTS
    middle = producers.get(last.inputs[0]) if whole else None
    if middle is None or not may_be_dilated(middle):
        return None
    first = producers.get(middle.inputs[0])
    if first is None or not first.is_builtin("SPACE_TO_BATCH_ND") or len(first.inputs) != _INPUTS:
        return None
    if not _is_exact(first, middle, last):
        return None
    blocks, edges = ([_list_integers(op.inputs[i]) for op in (first, last)] for i in (1, 2))
    if blocks[0] != blocks[1] or [len(each) for each in (blocks[0], *edges)] != [2, 4, 4]:
        return None
    top, bottom, left, right = (a - b for a, b in zip(*edges, strict=True))
    height, width = blocks[0]
    if min(top, bottom, left, right) < 0:
        return None
    options = Options(
        {
            **middle.options,
            "padding": "EXPLICIT",
            "pads": (top, left, bottom, right),
            "dilation_h_factor": height,
            "dilation_w_factor": width,
        }
    )
    inputs = (first.inputs[0], *middle.inputs[1:])
    return replace(middle, inputs=inputs, outputs=last.outputs, options=options)


def may_be_dilated(op: Op) -> bool:
    """Return whether an operator is a convolution that may get a dilation: condition 1."""
    o, (x, weights) = op.options, (*op.inputs, None, None)[:2]
    if not op.is_builtin(*CONVOLUTIONS) or x is None or weights is None:
        return False
    steps = {o.get("stride_h"), o.get("stride_w")}
    steps |= {o.get("dilation_h_factor", 1), o.get("dilation_w_factor", 1)}
    is_hybrid = x.quantization is None and weights.quantization is not None
    return o.get("padding") == "VALID" and steps == {1} and not is_hybrid


def fuse_pads_into_convolutions(graph: Graph) -> Graph:
    """Return the graph with explicit pads in convolutions; PAD stays for other readers."""
    producers: dict[Tensor | None, Op] = {t: op for op in graph.every_op() for t in op.outputs[:1]}
    return graph.rewrite(lambda op: _absorb_pad(op, producers))


def _pads_zeros(op: Op) -> bool:
    """Return whether an operator is PAD, or PADV2 with a constant that stands for 0."""
    value = op.inputs[2] if op.is_builtin("PADV2") and op.inputs[2:] else None
    if value is None or value.data is None or value.data.size != 1:
        return op.is_builtin("PAD") and bool(op.inputs[1:])
    zero = 0 if value.quantization is None else value.quantization.zero_point[0]
    return bool(value.data.flat[0] == zero)


def _absorb_pad(op: Op, producers: Mapping[Tensor | None, Op]) -> tuple[Op, ...]:
    """Return a convolution that reads the input of the PAD before it, if it can.

    If there is a TRANSPOSE between the two, a TRANSPOSE of the input of PAD comes first.
    """
    pads = op.is_builtin(*CONVOLUTIONS) and op.options.get("padding") in ("VALID", "EXPLICIT")
    wide = op.inputs[0] if pads and op.inputs else None
    last = producers.get(wide)
    turn = last if last and last.is_builtin("TRANSPOSE") and last.inputs[1:] else None
    first = producers.get(turn.inputs[0]) if turn else last
    x = first.inputs[0] if first and _pads_zeros(first) else None
    if first is None or x is None or wide is None or x.rank != _IMAGE:
        return (op,)
    order = _list_integers(turn.inputs[1]) if turn else [*range(_IMAGE)]
    edges = _list_integers(first.inputs[1])
    if len(edges) != 2 * _IMAGE or min(edges) < 0 or sorted(order) != [*range(_IMAGE)]:
        return (op,)
    batch, (top, bottom), (left, right), channels = (edges[2 * i : 2 * i + 2] for i in order)
    alike = same_scale(x, first.outputs[0]) and same_scale(x, wide)
    if not alike or any(batch + channels):
        return (op,)
    own = op.options.get("pads", (0, 0, 0, 0))
    added = tuple(a + b for a, b in zip(own, (top, left, bottom, right), strict=True))
    options = Options({**op.options, "padding": "EXPLICIT", "pads": added})
    y = _transpose_tensor(x, order) if turn else x
    moves = (replace(turn, inputs=(x, turn.inputs[1]), outputs=(y,)),) if turn else ()
    return *moves, replace(op, inputs=(y, *op.inputs[1:]), options=options)


def _transpose_tensor(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return the tensor that has the axes of another in this order."""
    shape = tuple(x.shape[i] for i in order)
    symbols = {axis: x.symbols[i] for axis, i in enumerate(order) if i in x.symbols}
    return replace(new_tensor(x, "transpose", shape), symbols=symbols)


def _list_integers(tensor: Tensor | None) -> list[int]:
    if tensor is None or tensor.data is None or not tensor.dtype.is_integer:
        return []
    return [int(number) for number in tensor.data.reshape(-1)]


def _is_exact(first: Op, middle: Op, last: Op) -> bool:
    """Return whether fusing three operators changes no result: condition 3."""
    x = first.inputs[0]
    if x is None or x.rank != _IMAGE or {1, 2} & x.symbols.keys():
        return False
    return same_scale(x, first.outputs[0]) and same_scale(middle.outputs[0], last.outputs[0])
