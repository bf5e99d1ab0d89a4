"""The place of the samples of a batch in a tensor.

A network is given for one sample. For a batch of n samples one axis of each computed tensor is n
times as long: `outer` elements of this axis come before the samples, and the others come after
them. If the axis has one element for one sample, it is the batch axis.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from tflite2onnx.utils.dimension import Dim, Dimension, Symbol, list_symbols, make_dimension

Sizes = tuple[Dim, ...]

# The number of samples. No file and no user can give this name to a size.
BATCH = Symbol("(batch)", 1)
SAMPLES = make_dimension(BATCH)


class Place(NamedTuple):
    """The axis with the samples, and the number of its elements that come before the samples."""

    axis: int
    outer: Dim = 1


def divide(number: Dim, divisor: Dim) -> Dim | None:
    """Return a quotient, None if it is not an integer for all dynamic sizes."""
    if number == divisor:
        return 1
    if isinstance(number, Dimension):
        return number.divide_exactly(divisor)
    if isinstance(divisor, Dimension) or not divisor or number % divisor:
        return None
    return number // divisor


def count_in_sample(size: Dim) -> Dim:
    """Return a size divided by the number of samples, 0 if it is no multiple."""
    part = divide(size, SAMPLES)
    # A comparison of dimensions may be undecided, so the test is for None.
    return 0 if part is None else part


def has_samples(size: object) -> bool:
    """Return whether a size depends on the number of samples."""
    return BATCH in list_symbols(size)


def find_sample_axis(sizes: Sequence[Dim]) -> int | None:
    """Return the only axis whose size is a multiple of the number of samples, else None."""
    axes = [axis for axis, size in enumerate(sizes) if has_samples(size)]
    part = divide(sizes[axes[0]], SAMPLES) if len(axes) == 1 else None
    return None if part is None or has_samples(part) else axes[0]


def take_sample(sizes: Sequence[Dim], place: Place) -> Sizes:
    """Return the shape of one sample."""
    return _replace_size(sizes, place.axis, count_in_sample(sizes[place.axis]))


def join_samples(sample: Sequence[Dim], place: Place) -> Sizes:
    """Return the shape of a batch of samples."""
    return _replace_size(sample, place.axis, sample[place.axis] * SAMPLES)


def _replace_size(sizes: Sequence[Dim], axis: int, size: Dim) -> Sizes:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def count_before(sample: Sequence[Dim], place: Place) -> Dim:
    """Return how many elements of one sample come before the samples, in a row-major layout."""
    before: Dim = prod(sample[: place.axis]) * place.outer
    return before


def rank_places(sample: Sequence[Dim], before: Dim) -> list[Place]:
    """Return the places after `before` elements; axes of size 1 come first."""
    rank = len(sample)
    # The last axis comes last, because most operators that mix elements mix the last axis.
    return sorted(
        list_places(sample, before),
        key=lambda place: (sample[place.axis] != 1, place.axis == rank - 1),
    )


def list_places(sample: Sequence[Dim], before: Dim) -> Iterator[Place]:
    """Yield all places after `before` elements; an empty sample has none before, and any place.

    An axis without elements would have none for all samples either, and would lose their number.
    """
    for axis, size in enumerate(sample):
        if 0 in sample:
            if size != 0:
                yield Place(axis)
            continue
        outer = divide(before, prod(sample[:axis]))
        if outer is not None and divide(size, outer) is not None:
            yield Place(axis, outer)
