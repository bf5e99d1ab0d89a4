"""The time of convolutions in ONNX Runtime, as a sum of terms.

ONNX Runtime computes convolutions in blocks of channels: 16 with AVX-512, 8 with AVX2. The terms
are: the node, the multiplications (of whole blocks), the numbers that are loaded for
multiplications (once for four blocks of filters), the bytes of the input and output images, the
bytes of the filters, and the bytes to which an activation other than Relu is applied, in a separate
pass. The factors depend on the kernel:

    pointwise   1x1 filters, in blocks
    window      larger filters, in blocks
    depthwise   in blocks
    direct      reads fewer channels than a block has, so channels-first: from a ReorderOutput, if
                the image comes from another convolution
    reorder     ReorderOutput
    pixels      DepthToSpace

`scripts/fit_convolutions.py` measures nodes of random networks and prints the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

_TOGETHER = 4  # blocks of filters that read a number once
_FLOAT = 4  # bytes


class Terms(NamedTuple):
    """The terms of a node's time: multiplications, loaded numbers, and bytes."""

    products: float
    loads: float
    size: float
    filters: float = 0
    activated: float = 0


class Factors(NamedTuple):
    """Microseconds of a node, and of a million multiplications, loads and bytes."""

    node: float
    products: float
    loads: float
    megabytes: float
    filters: float
    activated: float

    def estimate(self, terms: Terms) -> float:
        """Return the microseconds of a node."""
        parts = zip(self[1:], terms, strict=True)
        return self.node + 1e-6 * sum(factor * term for factor, term in parts)

    def estimate_move(self, size: float) -> float:
        """Return the microseconds of a node that only moves bytes."""
        return self.estimate(Terms(0, 0, size))


# The factors by channels of a block and by kernel: `python scripts/fit_convolutions.py 400`, ONNX
# Runtime 1.32, one thread of an AMD EPYC (family 26, Zen 5). The median error of a node is 6 %
# (pointwise) to 15 % (depthwise). Blocks of 8 channels were measured on the same processor, with a
# copy of ONNX Runtime that does not use AVX-512.
FACTORS: Mapping[int, Mapping[str, Factors]] = {
    16: {
        "pointwise": Factors(2.834, 7.165, 45.49, 1.983, 12.22, 17.54),
        "window": Factors(2.828, 6.726, 77.04, 0, 16.69, 6.492),
        "depthwise": Factors(2.67, 10.3, 0, 6.091, 109.9, 21.78),
        "direct": Factors(3.154, 5.563, 89.22, 26.45, 97.44, 20.81),
        "reorder": Factors(1.888, 0, 0, 9.529, 0, 0),
        "pixels": Factors(2.874, 0, 0, 143.6, 0, 0),
    },
    8: {
        "pointwise": Factors(2.746, 10.73, 151.6, 1.306, 17.33, 17.91),
        "window": Factors(3.067, 10.83, 145.3, 0, 9.72, 19.66),
        "depthwise": Factors(2.845, 22.42, 0, 7.871, 152.1, 22.39),
        "direct": Factors(3.526, 9.265, 173.5, 16.51, 100.1, 18.98),
        "reorder": Factors(2.103, 0, 0, 13.05, 0, 0),
        "pixels": Factors(3.055, 0, 0, 145.5, 0, 0),
    },
}


def list_terms(
    block: int, filters: tuple[int, ...], outputs: int, pixels: tuple[int, int], *, depthwise: bool
) -> tuple[str, Terms]:
    """Return the kernel of a convolution, and its terms.

    `filters` are the channels that a filter reads, its height and its width. `pixels` are the
    numbers of pixels of the input and of the output image.
    """
    channels, *window = filters
    kernel = find_kernel(block, channels, tuple(window), depthwise=depthwise)
    width = _round_up(outputs, block)
    if kernel in ("pointwise", "window"):
        channels = _round_up(channels, block)
    loads = (
        0 if depthwise else channels * prod(window) * pixels[1] * -(-width // (_TOGETHER * block))
    )
    size = (width if depthwise else channels) * pixels[0] + width * pixels[1]
    filters_size = channels * prod(window) * width
    return kernel, Terms(filters_size * pixels[1], loads, _FLOAT * size, _FLOAT * filters_size)


def find_kernel(block: int, read: int, window: tuple[int, ...], *, depthwise: bool) -> str:
    """Return the kernel of a convolution, a name in the list above."""
    if depthwise:
        return "depthwise"
    if read < block:
        return "direct"
    return "pointwise" if prod(window) == 1 else "window"


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block
