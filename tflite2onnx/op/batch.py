"""SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: blocks of pixels that become images, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Order
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect, ints
from tflite2onnx.tensor import Shape

_RANKS = (3, 4)
# An axis, whether it is the place within a block along that axis, and the size.
_Part = tuple[int, bool, int]


class _Batches(Operator):
    """What both have in common: a batch, one or two axes of space, and what else a pixel has.

    The batch is counted by place in the block first: all that are the first pixel of their
    blocks come before all that are the second.
    """

    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    moves = True

    @cached_property
    def _block(self) -> list[int]:
        """The size of a block along each axis, 1 along those that are no space."""
        rank, sizes = self.input(0).rank, ints(self, 1)
        if rank not in _RANKS or len(sizes) != rank - 2 or min(sizes) < 1:
            message = f"blocks of {sizes} in {rank} axes"
            raise OperatorError(message)
        return [1, *sizes, 1]

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        """What is added, or cut off, before and behind each axis."""
        flat, rank = ints(self, 2), self.input(0).rank
        if self.input(2).shape != (rank - 2, 2) or min(flat) < 0:
            message = f"edges {flat} of the shape {list(self.input(2).shape)} for {rank} axes"
            raise OperatorError(message)
        return [(0, 0), *zip(flat[::2], flat[1::2], strict=True), (0, 0)]

    def _divided(self, sizes: Sequence[int], by: Sequence[int]) -> list[int]:
        pairs = list(zip(sizes, by, strict=True))
        if any(size % block for size, block in pairs):
            message = f"{list(sizes)} cannot be divided into blocks of {list(by)}"
            raise OperatorError(message)
        return [size // block for size, block in pairs]


def _blocks_apart(order: Order, sizes: Shape, block: Sequence[int]) -> list[_Part]:
    """Return the axes with each axis of space split in two: blocks, and places in a block."""
    spaces = range(1, len(sizes) - 1)
    parts = []
    for axis in order:
        parts.append((axis, False, sizes[axis]))
        if axis in spaces:
            parts.append((axis, True, block[axis]))
    return parts


def _blocks_in_front(order: Order, sizes: Shape, block: Sequence[int]) -> list[_Part]:
    """Return the same axes with the places in a block before the batch."""
    spaces = range(1, len(sizes) - 1)
    parts = []
    for axis in order:
        if axis == 0:
            parts += [(space, True, block[space]) for space in spaces]
        parts.append((axis, False, sizes[axis]))
    return parts


def _reordered(
    g: Builder, value: Value, old: Sequence[_Part],
    new: Sequence[_Part], made: Sequence[int],
) -> Value:  # fmt: skip
    split = g.reshape(value, [size for *_, size in old])
    return g.reshape(g.Transpose(split, perm=[old.index(part) for part in new]), made)


class SpaceToBatch(_Batches):
    """SPACE_TO_BATCH_ND: each place in a block of pixels becomes a batch of its own."""

    codes = ("SPACE_TO_BATCH_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The sizes without the blocks: the batch, the blocks along each axis, the rest."""
        block, pairs = self._block, zip(self.input(0).shape, self._edges, strict=True)
        return tuple(self._divided([size + sum(pads) for size, pads in pairs], block))

    def check(self) -> None:
        x, (batch, *rest) = self.input(0), self._sizes
        expect(self.output, (batch * int(np.prod(self._block)), *rest), x.dtype)

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        old = _blocks_apart(x.order, self._sizes, self._block)
        new = _blocks_in_front(y.order, self._sizes, self._block)
        return _reordered(g, self._padded(g, x), old, new, y.shape)

    def _padded(self, g: Builder, x: View) -> Value:
        if not np.any(self._edges):
            return x.value
        begins, ends = zip(*x.reorder(self._edges), strict=True)
        fill = g.scalar(x.kept.zero_point, x.dtype)
        pads = g.ints([*begins, *ends])
        return g.within("Pad", x.dtype, lambda v, c: g.Pad(v, pads, c), x, fill)


class BatchToSpace(_Batches):
    """BATCH_TO_SPACE_ND: batches become the places in blocks of pixels."""

    codes = ("BATCH_TO_SPACE_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The sizes without the blocks: the batch, the blocks along each axis, the rest."""
        (batch, *rest) = self.input(0).shape
        return (*self._divided([batch], [int(np.prod(self._block))]), *rest)

    @cached_property
    def _whole(self) -> list[int]:
        """The sizes before anything is cut off."""
        return [size * block for size, block in zip(self._sizes, self._block, strict=True)]

    def check(self) -> None:
        pairs = zip(self._whole, self._edges, strict=True)
        made = [size - sum(crops) for size, crops in pairs]
        if min(made) < 0:
            message = f"{self._edges} cannot be cut off {self._whole}"
            raise OperatorError(message)
        expect(self.output, made, self.input(0).dtype)

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        old = _blocks_in_front(x.order, self._sizes, self._block)
        new = _blocks_apart(y.order, self._sizes, self._block)
        made = _reordered(g, x.value, old, new, y.reorder(self._whole))
        axes = [axis for axis, crops in enumerate(self._edges) if any(crops)]
        if not axes:
            return made
        first = [self._edges[axis][0] for axis in axes]
        last = [self._whole[axis] - self._edges[axis][1] for axis in axes]
        at = g.ints([y.axis(axis) for axis in axes])
        return g.within(
            "Slice", x.dtype, lambda v: g.Slice(v, g.ints(first), g.ints(last), at), made
        )
