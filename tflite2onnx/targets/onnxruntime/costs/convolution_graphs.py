"""The expected time of convolutions in ONNX Runtime, which chooses between their forms.

A time is that of all convolutions of a graph, by the table of
`convolution_times`, with blocks of 16 channels and with blocks of 8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from math import prod, sqrt
from typing import NamedTuple

from tflite2onnx.graph import Graph
from tflite2onnx.passes.operands import CONVOLUTIONS
from tflite2onnx.planning import list_orders
from tflite2onnx.targets.onnxruntime.blocks import list_blocked
from tflite2onnx.targets.onnxruntime.costs.convolution_times import FACTORS, list_terms
from tflite2onnx.tensor import Tensor

# The part of the time with AVX2 that a gain with AVX-512 may cost. Two measurements of a model
# differ by more.
_ALLOWANCE = 0.03
_MOST_ESTIMATED = 1 << 18  # operators, in all trials of a pass, which takes some seconds
# Microseconds that a change must save: a smaller gain is less than the error of the table, and is
# not worth weights with more elements.
_LEAST_GAIN = 1


_logger = logging.getLogger(__name__)


class Times(NamedTuple):
    """The expected microseconds of all convolutions of a graph with AVX-512, and with AVX2."""

    avx512: float
    avx2: float

    def __str__(self) -> str:
        return f"{self.avx512:.1f} us with AVX-512 and {self.avx2:.1f} us with AVX2"

    def is_better(self, other: Times, first: Times) -> bool:
        """Return whether these times are shorter than others in the geometric mean.

        With AVX2 they must be about as short as the first times, before all changes.
        """
        gain = sqrt(other.avx512 * other.avx2) - sqrt(self.avx512 * self.avx2)
        return gain > _LEAST_GAIN and self.avx2 <= (1 + _ALLOWANCE) * first.avx2


def keep_faster(graph: Graph, changes: Sequence[Callable[[Graph], Graph]]) -> Graph:
    """Return the graph after those changes, one by one, that are expected to make it faster.

    Each change is one of the graph after the changes before it; it returns the graph itself if the
    graph is no longer one to change.
    """
    if not changes:
        return graph
    # An image that a change makes takes the place of one that is in blocks.
    others = list_orders(graph).keys() - list_blocked(graph)
    first = times = estimate_times(graph, others)
    for change in changes[: _MOST_ESTIMATED // max(len(graph.ops), 1)]:
        other = change(graph)
        if other is graph:
            continue
        expected = estimate_times(other, others)
        if expected.is_better(times, first):
            graph, times = other, expected
        else:
            _logger.debug("convolutions stay: %s are expected in place of %s", expected, times)
    return graph


def estimate_times(graph: Graph, others: Collection[Tensor]) -> Times:
    """Return the expected time of the convolutions of a graph, and of the reorders before them.

    `others` are the tensors that are not in blocks of channels.
    """
    return Times(*(sum(_estimate_nodes(graph, others, block)) for block in FACTORS))


def estimate_convolution(block: int, filters: tuple[int, ...], x: Tensor, y: Tensor) -> float:
    """Return the microseconds of a convolution of images in TFLite's layout.

    `filters` are the channels that a filter reads, the height, and the width.
    """
    depthwise = filters[0] == 1 < x.shape[-1]
    pixels = prod(x.shape[:-1]), prod(y.shape[:-1])
    kernel, terms = list_terms(block, filters, y.shape[-1], pixels, depthwise=depthwise)
    return FACTORS[block][kernel].estimate(terms)


def _estimate_nodes(graph: Graph, others: Collection[Tensor], block: int) -> Iterator[float]:
    direct = set()
    for op in graph.ops:
        if op.is_builtin(*CONVOLUTIONS):
            x, w = op.operand(0), op.operand(1)
            read = w.shape[-1] if op.code == "CONV_2D" else 1
            yield estimate_convolution(block, (read, *w.shape[1:3]), x, op.outputs[0])
            if op.code == "CONV_2D" and read < block and x not in others:
                direct.add(x)
    for x in direct:
        yield FACTORS[block]["reorder"].estimate_move(8 * x.elements)
