"""The expected time of convolutions in ONNX Runtime, which chooses between their forms.

ONNX Runtime computes convolutions in blocks of channels: 16 with AVX-512, 8 with AVX2. The time of
a node is a sum of three terms: one for each node, one for the multiplications (of whole blocks),
and one for the bytes of the image that it reads and of the one that it makes. The factors depend on
the kernel:

    pointwise   1x1 filters, in blocks
    window      larger filters, in blocks
    depthwise   in blocks
    direct      reads fewer channels than a block has, so channels-first: from a ReorderOutput, if
                the image comes from another convolution
    reorder     ReorderOutput

`scripts/fit_convolutions.py` measures nodes of random networks and prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod, sqrt
from typing import NamedTuple

from tflite2onnx.graph import Graph
from tflite2onnx.passes.operands import find_images
from tflite2onnx.tensor import Tensor

_IMAGE = 4  # axes
# The part of the time with AVX2 that a gain with AVX-512 may cost. Two measurements of a model
# differ by more.
_ALLOWANCE = 0.03
_MOST_ESTIMATED = 1 << 18  # operators, in all trials of a pass, which takes some seconds
# Microseconds that a change must save: a smaller gain is less than the error of the table, and is
# not worth weights with more elements.
_LEAST_GAIN = 1


class Factors(NamedTuple):
    """Microseconds of a node, of a million multiplications, and of a million bytes."""

    node: float
    products: float
    megabytes: float

    def estimate(self, products: float, size: float) -> float:
        """Return the microseconds of a node by its multiplications and bytes."""
        return self.node + 1e-6 * (products * self.products + size * self.megabytes)


# By channels of a block, and by kernel: `python scripts/fit_convolutions.py`, ONNX Runtime 1.32,
# one thread of an AMD EPYC (Zen 4). The median error of a node is 4 % (pointwise) to 19 %
# (reorder). The times with blocks of 8 are those of the same processor and a copy of ONNX Runtime
# that was changed so that it does not find AVX-512.
FACTORS: Mapping[int, Mapping[str, Factors]] = {
    16: {
        "pointwise": Factors(5.05, 21.47, 8.41),
        "window": Factors(5.10, 22.44, 0),
        "depthwise": Factors(5.34, 35.84, 15.23),
        "direct": Factors(6.46, 13.98, 130.9),
        "reorder": Factors(4.16, 0, 32.07),
    },
    8: {
        "pointwise": Factors(4.37, 19.63, 18.48),
        "window": Factors(4.73, 19.06, 110.9),
        "depthwise": Factors(4.80, 52.71, 3.84),
        "direct": Factors(7.07, 0, 200.5),
        "reorder": Factors(4.17, 0, 30.74),
    },
}


class Times(NamedTuple):
    """The expected microseconds of all convolutions of a graph with AVX-512, and with AVX2."""

    avx512: float
    avx2: float

    def is_better(self, other: Times, first: Times) -> bool:
        """Return whether these times are shorter than others in the geometric mean.

        With AVX2 they must be about as short as the first times, before all changes.
        """
        gain = sqrt(other.avx512 * other.avx2) - sqrt(self.avx512 * self.avx2)
        return gain > _LEAST_GAIN and self.avx2 <= (1 + _ALLOWANCE) * first.avx2


def limit_trials(graph: Graph) -> int:
    """Return how many changes of a graph may be tried, each of which estimates the whole graph."""
    return _MOST_ESTIMATED // max(len(graph.ops), 1)


def estimate_times(graph: Graph) -> Times:
    """Return the expected time of the convolutions of a graph, and of the reorders before them."""
    images = find_images(graph)
    return Times(*(sum(_estimate_nodes(graph, images, block)) for block in FACTORS))


def estimate_convolution(block: int, filters: tuple[int, ...], x: Tensor, y: Tensor) -> float:
    """Return the microseconds of a convolution of images in TFLite's layout.

    `filters` are the channels that a filter reads, the height, and the width.
    """
    read, *window = filters
    depthwise = read == 1 < x.shape[-1]
    kernel = find_kernel(block, read, tuple(window), depthwise=depthwise)
    made = _round_up(y.shape[-1], block)
    if kernel != "direct" and not depthwise:
        read = _round_up(read, block)
    inputs = (
        x.elements if kernel == "direct" else prod(x.shape[:-1]) * (made if depthwise else read)
    )
    pixels = prod(y.shape[:-1])
    factors = FACTORS[block][kernel]
    return factors.estimate(read * prod(window) * made * pixels, 4 * (inputs + made * pixels))


def find_kernel(block: int, read: int, window: tuple[int, ...], *, depthwise: bool) -> str:
    """Return the kernel of a convolution: see above."""
    if depthwise:
        return "depthwise"
    if read < block:
        return "direct"
    return "pointwise" if prod(window) == 1 else "window"


def _estimate_nodes(graph: Graph, images: set[Tensor], block: int) -> Iterator[float]:
    direct = set()
    for op in graph.ops:
        match op.code, op.inputs, op.outputs:
            case (
                ("CONV_2D" | "DEPTHWISE_CONV_2D"),
                [Tensor(rank=4) as x, Tensor(rank=4) as w, *_],
                [Tensor(rank=4) as y],
            ):
                read = w.shape[-1] if op.is_builtin("CONV_2D") else 1
                yield estimate_convolution(block, (read, *w.shape[1:3]), x, y)
                if op.is_builtin("CONV_2D") and read < block and x in images:
                    direct.add(x)
    for x in direct:
        yield FACTORS[block]["reorder"].estimate(0, 8 * x.elements)


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block
