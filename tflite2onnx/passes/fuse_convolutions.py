"""Convolutions with a part of their work done by others, joined into one: TFLite to TFLite.

Dilated ones, as TensorFlow once wrote them: SPACE_TO_BATCH_ND makes images of the pixels that are
so many steps apart, a convolution runs over each, and BATCH_TO_SPACE_ND puts the results back in
place. That is one convolution with a dilation: what was added around the image is its padding,
less what is cut off in the end.

Padded ones: what SAME does not mean, as one row more above the image than below, is a PAD before
a convolution that pads nothing. ONNX Runtime joins the two where they compute real numbers, but
not where they compute integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.quantize import same_scale
from tflite2onnx.tensor import Tensor

_CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")
_IMAGE = 4  # axes
_INPUTS = 3  # of either operator around a dilated one: data, blocks, edges


def fuse_dilated_convolutions(graph: Graph) -> Graph:
    """Return the graph with one convolution in place of the three operators."""
    every = list(graph.every_op())
    makers: dict[Tensor | None, Op] = {t: op for op in every for t in op.outputs[:1]}
    read: dict[Tensor | None, int] = {}
    for tensor in (t for op in every for t in dict.fromkeys(op.inputs)):
        read[tensor] = read.get(tensor, 0) + 1
    for tensor in (t for each in graph.every_graph() for t in each.outputs):
        read[tensor] = read.get(tensor, 0) + 1
    joined: dict[Op, Op | None] = {}
    for op in every:
        found = _fuse_convolution(op, makers) if op.is_builtin("BATCH_TO_SPACE_ND") else None
        # The first of the three may have other readers; then it stays for them.
        if found is not None and read[op.inputs[0]] == 1:
            joined[op] = found
            joined[makers[op.inputs[0]]] = None
    return graph.rewrite(lambda op: [each for each in (joined.get(op, op),) if each is not None])


def _fuse_convolution(last: Op, makers: Mapping[Tensor | None, Op]) -> Op | None:
    """Return the convolution that an operator puts the results of in place, if it can be one."""
    whole = last.outputs and len(last.inputs) == _INPUTS
    middle = makers.get(last.inputs[0]) if whole else None
    if middle is None or not middle.is_builtin(*_CONVOLUTIONS) or not middle.inputs[1:]:
        return None
    first = makers.get(middle.inputs[0])
    if first is None or not first.is_builtin("SPACE_TO_BATCH_ND") or len(first.inputs) != _INPUTS:
        return None
    o = middle.options
    steps = {o.get("stride_h"), o.get("stride_w")}
    steps |= {o.get("dilation_h_factor", 1), o.get("dilation_w_factor", 1)}
    if o.get("padding") != "VALID" or steps != {1} or not _exact(first, middle, last):
        return None
    blocks, edges = ([_constant_integers(op.inputs[i]) for op in (first, last)] for i in (1, 2))
    if blocks[0] != blocks[1] or [len(each) for each in (blocks[0], *edges)] != [2, 4, 4]:
        return None
    top, bottom, left, right = (a - b for a, b in zip(*edges, strict=True))
    height, width = blocks[0]
    if min(top, bottom, left, right) < 0:
        return None
    options = Options(
        {
            **o,
            "padding": "EXPLICIT",
            "pads": (top, left, bottom, right),
            "dilation_h_factor": height,
            "dilation_w_factor": width,
        }
    )
    inputs = (first.inputs[0], *middle.inputs[1:])
    return replace(middle, inputs=inputs, outputs=last.outputs, options=options)


def fuse_pads_into_convolutions(graph: Graph) -> Graph:
    """Return the graph with convolutions that pad for themselves; PAD stays for other readers."""
    pads = [op for op in graph.every_op() if op.is_builtin("PAD")]
    makers: dict[Tensor | None, Op] = {t: op for op in pads for t in op.outputs[:1]}
    return graph.rewrite(lambda op: (_absorb_pad(op, makers),))


def _absorb_pad(op: Op, makers: Mapping[Tensor | None, Op]) -> Op:
    """Return a convolution that reads an image as it was before PAD, if there is one."""
    pads = op.is_builtin(*_CONVOLUTIONS) and op.options.get("padding") in ("VALID", "EXPLICIT")
    first = makers.get(op.inputs[0]) if pads and op.inputs else None
    x = first.inputs[0] if first and first.inputs[1:] else None
    if first is None or x is None or x.rank != _IMAGE or not same_scale(x, first.outputs[0]):
        return op
    edges = _constant_integers(first.inputs[1])
    if len(edges) != 2 * _IMAGE or min(edges) < 0 or any(edges[:2] + edges[-2:]):
        return op
    top, bottom, left, right = edges[2:-2]
    own = op.options.get("pads", (0, 0, 0, 0))
    added = tuple(a + b for a, b in zip(own, (top, left, bottom, right), strict=True))
    options = Options({**op.options, "padding": "EXPLICIT", "pads": added})
    return replace(op, inputs=(x, *op.inputs[1:]), options=options)


def _constant_integers(tensor: Tensor | None) -> list[int]:
    if tensor is None or tensor.data is None or not tensor.dtype.is_integer:
        return []
    return [int(number) for number in tensor.data.reshape(-1)]


def _exact(first: Op, middle: Op, last: Op) -> bool:
    """Return whether the integers of the three stand for the same numbers, and sizes are fixed.

    Kernels of integer weights round real data image by image, of which there would be fewer.
    """
    x, weights = first.inputs[0], middle.inputs[1]
    if x is None or weights is None or x.rank != _IMAGE or {1, 2} & x.symbols.keys():
        return False
    hybrid = x.quantization is None and weights.quantization is not None
    alike = same_scale(x, first.outputs[0]) and same_scale(middle.outputs[0], last.outputs[0])
    return not hybrid and alike
