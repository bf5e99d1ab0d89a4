"""Convolutions with 1x1 filters read images before they are resized to more pixels.

    conv(resize(x)) = resize(conv(x))
    conv(concatenation(a, resize(b))) = conv(a) + resize(conv(b))

A convolution of one pixel mixes channels, and a resize mixes pixels by weights whose sum is 1, so
that either may be first. SegFormer resizes three images to the size of a fourth one; DPT and
networks of the family of YOLO double an image, and a quarter of the multiplications is left. A
CONV_2D is replaced if

1. its filters are constant floats, of one pixel, with strides of 1 and without groups;
2. its input, or a part of it, is the result of RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR, has more
   pixels than before, and no other reader; heights and widths are known;
3. the convolutions, resizes and sums are expected to be faster (`costs.py`).

If a dense layer makes an image before its resize, both become one product, unless it multiplies
more: W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import ABSENT, Graph, Op
from tflite2onnx.passes.operands import (
    are_fixed_floats,
    find_order,
    find_producer,
    is_float,
    joins_last_axis,
)
from tflite2onnx.passes.patterns.matching import Activated, Match
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import Rewriter, make_like
from tflite2onnx.quantization.storage import BOUNDS
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Terms, Times, estimate_convolution
from tflite2onnx.tensor import Array, Tensor

_RESIZES = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
_CHANNELS_LAST, _SWAPPED = (0, 2, 3, 1), (0, 2, 1)
_STEP = {"stride_h": 1, "stride_w": 1}
_MOVED, _ADDED = 8, 12  # bytes that are read and written for a float


class _JoinedPart(NamedTuple):
    """Channels of the input: an image, the operator that resizes it or `NO_OP`, and its filters."""

    image: Tensor
    resize: Op
    filters: Array

    @property
    def is_enlarged(self) -> bool:
        old, new = (t.shape[1:3] for t in (self.resize.operand(0), self.image))
        known = self.resize.inputs and old != new
        return bool(known and all(a <= b for a, b in zip(old, new, strict=True)))


@rule(
    "1x1 convolution of images that are resized to more pixels",
    "CONV_2D, RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR, ADD",
    Activated(("CONV_2D", "x", "w#", "b#?", _STEP)),
    needs=_RESIZES,
)
def convolve_before_resizes(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    x, y, w, graph = found.x, found.output, found.tensors["w#"], found.graph
    if w.shape[1:] != (1, 1, x.shape[-1]) or not is_float(w) or {*x.symbols, *y.symbols} - {0}:
        return "the filters must be float32 and of one pixel, and the size of the image known"
    parts = _list_parts(graph, x, w.values)
    if found.last.activation not in ("NONE", *BOUNDS) or not any(p.is_enlarged for p in parts):
        return "no image is resized to more pixels"
    pairs = [_estimate(block, parts, y) for block in FACTORS]
    after, before = (Times(*times) for times in zip(*pairs, strict=True))
    if loss := after.explain_loss(before):
        return loss
    bias = found.tensors["b#"].values if "b#" in found.tensors else None
    return _convolve_parts(found.last, graph, parts, bias)


def _list_parts(graph: Graph, x: Tensor, filters: Array) -> list[_JoinedPart]:
    """Return the parts of an image that operators join along the channels."""
    joined = find_producer(x, graph, "CONCATENATION")
    is_plain = joins_last_axis(joined) and joined.activation == "NONE"
    images = joined.present if is_plain else (x,)
    ends = accumulate(image.shape[-1] for image in images)
    return [
        _JoinedPart(
            image,
            find_producer(image, graph, *_RESIZES),
            filters[..., end - image.shape[-1] : end],
        )
        for image, end in zip(images, ends, strict=True)
    ]


def _estimate(block: int, parts: Sequence[_JoinedPart], y: Tensor) -> tuple[float, float]:
    """Return the expected microseconds with the convolutions first, and with the resizes first."""
    factors, (*_, outputs) = FACTORS[block], y.shape
    move = factors["reorder"].estimate_move

    def resize(part: _JoinedPart, channels: int) -> float:
        numbers = part.image.elements // part.image.shape[-1] * channels
        if part.resize.code == "RESIZE_BILINEAR":
            return factors["resize"].estimate(Terms(loads=numbers))
        return move(_MOVED * numbers)

    def convolve(*images: Tensor) -> float:
        shape = (*images[0].shape[:-1], sum(image.shape[-1] for image in images))
        joined = move(_MOVED * sum(image.elements for image in images)) if images[1:] else 0
        result = (*shape[:-1], outputs)
        return joined + estimate_convolution(block, (shape[-1], 1, 1), shape, result)

    small = [part for part in parts if part.is_enlarged]
    large = [part.image for part in parts if not part.is_enlarged]
    after = convolve(*large) if large else 0
    after += sum(convolve(p.resize.operand(0)) + resize(p, outputs) for p in small)
    after += (len(small) + bool(large) - 1) * move(_ADDED * y.elements)
    before = convolve(*(p.image for p in parts)) + sum(resize(p, p.image.shape[-1]) for p in small)
    return after, before


def _convolve_parts(
    conv: Op, graph: Graph, parts: Sequence[_JoinedPart], bias: Array | None
) -> list[Op]:
    """Return a convolution of each part before its resize, and the sum of their results."""
    rw, y = Rewriter(conv), conv.outputs[0]
    large = [part for part in parts if not part.is_enlarged]
    total: Tensor | None = None
    for index, part in enumerate(part for part in parts if part.is_enlarged):
        added = None if large or total else bias
        product = _convolve(rw, graph, part.resize.operand(0), part.filters, added)
        size, options, name = part.resize.operand(1), part.resize.options, f"resized{index}"
        term = rw.op(part.resize.code, product, size, like=y, name=name, **options)
        total = rw.op("ADD", total, term, like=y, name=f"sum{index}") if total else term
    if large:
        x, *others = (part.image for part in large)
        if others:
            shape = (*y.shape[:-1], sum(part.image.shape[-1] for part in large))
            x = rw.op("CONCATENATION", x, *others, like=y, name="joined", shape=shape, axis=3)
        filters = np.concatenate([part.filters for part in large], axis=-1)
        # ONNX Runtime computes this convolution, the sum and the activation in one node.
        total = rw.op("ADD", _convolve(rw, graph, x, filters, bias), total, like=y)
    if conv.activation != "NONE":
        rw.op(conv.activation, total, like=y)
    *ops, last = rw.ops
    return [*ops, replace(last, outputs=(y,))]


def _convolve(rw: Rewriter, graph: Graph, x: Tensor, filters: Array, bias: Array | None) -> Tensor:
    """Return a convolution of an image, or of the image before the dense layer that makes it."""
    dense = find_producer(_find_rows(graph, x), graph, "FULLY_CONNECTED")
    source, weights, added = (dense.operand(i) for i in range(3))
    outputs, between = len(filters), x.shape[-1]
    channels = source.shape[-1] if source.rank else 0
    is_plain = (
        are_fixed_floats(source, weights, x)
        and weights.has_data
        and weights.shape == (between, channels)
        and (added.has_data or added is ABSENT)
        and dense.activation == "NONE"
    )
    if is_plain and channels * outputs <= between * (channels + outputs):
        second = filters[:, 0, 0].astype(np.float64)
        filters = (second @ weights.values).astype(np.float32)[:, None, None]
        if added.has_data:
            sums = second @ added.values.reshape(-1) + (0 if bias is None else bias)
            bias = sums.astype(np.float32)
        x = rw.reshape(source, (*x.shape[:-1], channels), like=x, name="rows")
    result = make_like(rw.source.outputs[0], f"part{len(rw.ops)}", (*x.shape[:-1], outputs))
    return rw.convolve("CONV_2D", x, np.ascontiguousarray(filters), bias, output=result)


def _find_rows(graph: Graph, image: Tensor) -> Tensor:
    """Return the rows of channels of which RESHAPE alone, or with two TRANSPOSE, makes an image."""
    last = find_producer(image, graph, "RESHAPE", "TRANSPOSE")
    rows = last.operand(0)
    if find_order(last) == _CHANNELS_LAST:
        planes = find_producer(rows, graph, "RESHAPE").operand(0)  # channels first, as of PyTorch
        first = find_producer(planes, graph, "TRANSPOSE")
        keeps = find_order(first) == _SWAPPED and planes.shape[:2] == rows.shape[:2]
        return first.operand(0) if keeps else image
    keeps = last.is_builtin("RESHAPE") and rows.shape[-1:] == image.shape[-1:]
    return rows if keeps else image
