"""Slices of the channels of a convolution become convolutions of their filters.

YOLOv8 and its successors halve the channels of a convolution after its SiLU. ONNX Runtime has no
Slice or Split in its blocks of channels, so that the image leaves the blocks and both halves enter
them again; and the Concat of the halves stays outside of the blocks, too. A SLICE or STRIDED_SLICE
is replaced if

1. it takes channels of a float image, a multiple of 16, and all rows and columns; the image is the
   result of CONV_2D with constant filters and without groups, of its activation, or of its SiLU;
2. all operators that read the image are slices of this kind, and they take each channel once;
3. the convolutions are expected to be faster (`costs.py`) than the whole one and three moves.

Two blocks of YOLOv8 take 0.93 of the time for 40x40 pixels of 64 channels, 0.89 for 80x80 of 32,
0.97 for 20x20 of 128 and 0.82 for 160x160 of 32: processor time of sessions with the form and
without it in turns, on one thread of an AMD EPYC (family 25, model 17, with AVX-512).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.op.movement.slice import SLICES
from tflite2onnx.passes.operands import find_taken_ranges, is_float
from tflite2onnx.passes.patterns.matching import (
    Activated,
    Match,
    Named,
    OneOf,
    Pattern,
    Shared,
    any_of,
)
from tflite2onnx.passes.patterns.rules import rule
from tflite2onnx.passes.rewriter import make_constant, make_like
from tflite2onnx.targets.onnxruntime.blocks import NOT_IN_BLOCKS, is_blocked
from tflite2onnx.targets.onnxruntime.costs import FACTORS, Times, estimate_convolution
from tflite2onnx.targets.onnxruntime.forms.movement.split_slices import (
    list_slices,
)
from tflite2onnx.tensor import Tensor

_BLOCK = 16  # channels
_IMAGE = 4  # axes
_FUNCTIONS = ("GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "TANH")
_CONVOLUTION: Pattern = Named("z", Activated(("CONV_2D", "x", "w#", "b#?")))
_RESULT: Pattern = OneOf(
    *(_CONVOLUTION, ("MUL", _CONVOLUTION, ("LOGISTIC", "z"))),
    *((code, _CONVOLUTION) for code in _FUNCTIONS),
)


@rule(
    "slices of the channels of a convolution",
    "CONV_2D",
    any_of(SLICES, Named("y", Shared(_RESULT)), ...),
)
def split_convolutions(found: Match) -> list[Op] | str:
    """Return what replaces the match, or why nothing does."""
    y, z, w = (found.tensors[name] for name in ("y", "z", "w#"))
    conv, readers = found.graph.producers[z], found.graph.readers
    between = list(_list_between(found.graph, z, y))
    slices = found.analyze(list_slices)[y]
    parts = [r for r in (_find_channels(y, op) for op in slices) if r]
    taken = sorted(i for r in parts for i in r)
    alone = readers.are_among(slices, y) and (y is z or readers.are_among(between, z))
    if not alone or len(parts) < len(slices) or taken != [*range(y.shape[-1])]:
        return "all readers must be slices of a multiple of 16 channels, each channel once"
    if w.shape[-1] != conv.operand(0).shape[-1]:  # a part of the filters would read other groups
        return "the convolution has groups"
    if not is_float(w) or not is_blocked(found.graph, y):
        return NOT_IN_BLOCKS
    several, whole = _estimate(conv, parts)
    if loss := several.explain_loss(whole):
        return loss
    return list(_copy_for_channels(conv, between, parts[slices.index(found.last)], found.last))


def _list_between(graph: Graph, z: Tensor, y: Tensor) -> Iterator[Op]:
    """Yield the operators that compute an activation from the result of a convolution."""
    if y is not z:
        last = graph.producers[y]
        yield from (graph.producers[t] for t in last.present if t is not z)
        yield last


def _find_channels(y: Tensor, op: Op) -> range | None:
    """Return the channels that a slice takes, None unless condition 1 holds for them."""
    taken = find_taken_ranges(op)
    if not y.rank == op.outputs[0].rank == _IMAGE or y.symbols or [*taken] != [_IMAGE - 1]:
        return None
    channels = taken[_IMAGE - 1]
    return channels if channels.step == 1 and len(channels) % _BLOCK == 0 else None


def _estimate(conv: Op, parts: Sequence[range]) -> tuple[Times, Times]:
    """Return the expected times of a convolution of each part, and of the whole and its slices."""
    x, w, y = conv.operand(0), conv.operand(1), conv.outputs[0]
    filters, several, whole = (w.shape[-1], *w.shape[1:3]), [], []
    images = [(*y.shape[:-1], len(r)) for r in parts]
    for block, factors in FACTORS.items():
        several.append(sum(estimate_convolution(block, filters, x.shape, each) for each in images))
        # The image leaves the blocks, is sliced, and enters the blocks in three passes over it.
        moves = 3 * factors["reorder"].estimate_move(8 * y.elements)
        whole.append(estimate_convolution(block, filters, x.shape, y.shape) + moves)
    return Times(*several), Times(*whole)


def _copy_for_channels(conv: Op, between: Sequence[Op], channels: range, last: Op) -> Iterator[Op]:
    """Yield a convolution and the operators after it for some of its channels."""
    part = slice(channels.start, channels.stop)
    known: dict[Tensor, Tensor] = {}
    for tensor in conv.present[1:]:
        name = f"{tensor.name}/{channels.start}"
        known[tensor] = make_constant(name, np.ascontiguousarray(tensor.values[part]), tensor)
    for op in (conv, *between):
        y = op.outputs[0]
        shape = (*y.shape[:-1], len(channels))
        known[y] = make_like(y, f"channels{channels.start}", shape)
        if op is (conv, *between)[-1]:
            known[y] = last.outputs[0]
        yield replace(op.with_inputs(known), outputs=(known[y],))
