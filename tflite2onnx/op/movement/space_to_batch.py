"""SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: blocks of pixels that become images, and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Order
from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_list, expect_rank, ints
from tflite2onnx.op.common.runtime_shapes import multiply_sizes, reshape_to, sizes_of
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_RANKS = (3, 4)
# An axis, whether it is the place within a block along that axis, and the size.
_Part = tuple[int, bool, int]


class _Batches(DynamicShape):
    """What both have in common: a batch, one or two axes of space, and what else a pixel has.

    The batch is counted by place in the block first: all that are the first pixel of their
    blocks come before all that are the second.
    """

    shape_inputs = (1, 2)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    moves_only = True

    @property
    def _measures(self) -> bool:
        """Whether it is known at run time only how many blocks there are, or how large they are."""
        return self.has_data_dependent_shape or bool(self.input(0).symbols)

    def _check_dynamic(self) -> None:
        x = self.input(0)
        if x.rank not in _RANKS:
            raise OperatorError(f"blocks in {x.rank} axes")
        expect_list(self, 1, x.rank - 2)
        expect(self.input(2), (x.rank - 2, 2), self.input(1).dtype)
        expect_rank(self.output, x.rank, x.dtype)

    def _block_and_edges(self, g: Builder, block: View, edges: View) -> tuple[Value, Value]:
        """Return `_block` and `_edges`, as far as they are constant."""
        one, none = g.ints([1]), g.constant(np.zeros((1, 2), np.int64))
        if block.tensor.is_constant:
            sizes = g.ints(self._block)
        else:
            sizes = g.Concat(one, g.as_int64_list(block), one, axis=0)
        if edges.tensor.is_constant:
            return sizes, g.constant(np.array(self._edges, np.int64))
        return sizes, g.Concat(none, g.as_int64_list(edges), none, axis=0)

    @cached_property
    def _block(self) -> list[int]:
        """The size of a block along each axis, 1 along those that are no space."""
        rank, sizes = self.input(0).rank, ints(self, 1)
        if rank not in _RANKS or len(sizes) != rank - 2 or min(sizes) < 1:
            raise OperatorError(f"blocks of {sizes} in {rank} axes")
        return [1, *sizes, 1]

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        """What is added, or cut off, before and behind each axis."""
        flat, rank = ints(self, 2), self.input(0).rank
        if self.input(2).shape != (rank - 2, 2) or min(flat) < 0:
            raise OperatorError(
                f"edges {flat} of the shape {list(self.input(2).shape)} for {rank} axes"
            )
        return [(0, 0), *zip(flat[::2], flat[1::2], strict=True), (0, 0)]

    def _divide_sizes(self, sizes: Sequence[int], by: Sequence[int]) -> list[int]:
        pairs = list(zip(sizes, by, strict=True))
        if any(size % block for size, block in pairs):
            raise OperatorError(f"{list(sizes)} cannot be divided into blocks of {list(by)}")
        return [size // block for size, block in pairs]


def _split_blocks(order: Order, sizes: Shape, block: Sequence[int]) -> list[_Part]:
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


def _reorder_dynamic_parts(
    g: Builder,
    value: Value,
    old: Sequence[_Part],
    new: Sequence[_Part],
    counts: Value,
    block: Value,
    made: Value,
) -> Value:
    """Return the same where the sizes of the parts are known at run time."""
    rank = len(old) - sum(inner for _, inner, _ in old)
    places = [axis + rank * inner for axis, inner, _ in old]
    sizes = g.Gather(g.Concat(counts, block, axis=0), g.ints(places), axis=0)
    split = reshape_to(g, value, sizes)
    return reshape_to(g, g.Transpose(split, perm=[old.index(part) for part in new]), made)


def _reorder_parts(
    g: Builder,
    value: Value,
    old: Sequence[_Part],
    new: Sequence[_Part],
    made: Sequence[int],
) -> Value:
    split = g.reshape(value, [size for *_, size in old])
    return g.reshape(g.Transpose(split, perm=[old.index(part) for part in new]), made)


class SpaceToBatch(_Batches):
    """SPACE_TO_BATCH_ND: each place in a block of pixels becomes a batch of its own."""

    codes = ("SPACE_TO_BATCH_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The sizes without the blocks: the batch, the blocks along each axis, the rest."""
        block, pairs = self._block, zip(self.input(0).shape, self._edges, strict=True)
        return tuple(self._divide_sizes([size + sum(pads) for size, pads in pairs], block))

    def check(self) -> None:
        if self.has_data_dependent_shape:
            self._check_dynamic()
            return
        x, (batch, *rest) = self.input(0), self._sizes
        expect(self.output, (batch * int(np.prod(self._block)), *rest), x.dtype)

    def emit(self, g: Builder, y: View, x: View, block: View, edges: View) -> Value:
        if self._measures:
            return self._emit_dynamic(g, y, x, *self._block_and_edges(g, block, edges))
        old = _split_blocks(x.order, self._sizes, self._block)
        new = _blocks_in_front(y.order, self._sizes, self._block)
        if not np.any(self._edges):
            return _reorder_parts(g, x.value, old, new, y.shape)
        begins, ends = zip(*x.reorder(self._edges), strict=True)
        return _reorder_parts(g, self._pad_edges(g, x, g.ints([*begins, *ends])), old, new, y.shape)

    def _emit_dynamic(self, g: Builder, y: View, x: View, block: Value, edges: Value) -> Value:
        stored = g.Gather(edges, g.ints(x.order), axis=0)
        pads = g.reshape(g.Transpose(stored, perm=[1, 0]), [2 * x.rank])
        whole = g.Add(sizes_of(g, x), g.reduce("ReduceSum", edges, [1], keepdims=False))
        counts = g.Div(whole, block)
        times = g.Concat(multiply_sizes(g, block), g.ints([1] * (x.rank - 1)), axis=0)
        made = g.Gather(g.Mul(counts, times), g.ints(y.order), axis=0)
        unknown = (0,) * x.rank
        old = _split_blocks(x.order, unknown, unknown)
        new = _blocks_in_front(y.order, unknown, unknown)
        return _reorder_dynamic_parts(g, self._pad_edges(g, x, pads), old, new, counts, block, made)

    def _pad_edges(self, g: Builder, x: View, pads: Value) -> Value:
        fill = g.scalar(x.storage.zero_point, x.dtype)
        return g.with_compute_type("Pad", x.dtype, lambda v, c: g.Pad(v, pads, c), x, fill)


class BatchToSpace(_Batches):
    """BATCH_TO_SPACE_ND: batches become the places in blocks of pixels."""

    codes = ("BATCH_TO_SPACE_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The sizes without the blocks: the batch, the blocks along each axis, the rest."""
        (batch, *rest) = self.input(0).shape
        return (*self._divide_sizes([batch], [int(np.prod(self._block))]), *rest)

    @cached_property
    def _uncropped_sizes(self) -> list[int]:
        """The sizes before anything is cut off."""
        return [size * block for size, block in zip(self._sizes, self._block, strict=True)]

    def check(self) -> None:
        if self.has_data_dependent_shape:
            self._check_dynamic()
            return
        pairs = zip(self._uncropped_sizes, self._edges, strict=True)
        made = [size - sum(crops) for size, crops in pairs]
        if min(made) < 0:
            raise OperatorError(f"{self._edges} cannot be cut off {self._uncropped_sizes}")
        expect(self.output, made, self.input(0).dtype)

    def emit(self, g: Builder, y: View, x: View, block: View, edges: View) -> Value:
        if self._measures:
            return self._emit_dynamic(g, y, x, *self._block_and_edges(g, block, edges))
        old = _blocks_in_front(x.order, self._sizes, self._block)
        new = _split_blocks(y.order, self._sizes, self._block)
        made = _reorder_parts(g, x.value, old, new, y.reorder(self._uncropped_sizes))
        axes = [axis for axis, crops in enumerate(self._edges) if any(crops)]
        if not axes:
            return made
        first = [self._edges[axis][0] for axis in axes]
        last = [self._uncropped_sizes[axis] - self._edges[axis][1] for axis in axes]
        at = g.ints([y.axis(axis) for axis in axes])
        return g.with_compute_type(
            "Slice", x.dtype, lambda v: g.Slice(v, g.ints(first), g.ints(last), at), made
        )

    def _emit_dynamic(self, g: Builder, y: View, x: View, block: Value, edges: Value) -> Value:
        times = g.Concat(multiply_sizes(g, block), g.ints([1] * (x.rank - 1)), axis=0)
        counts = g.Div(sizes_of(g, x), times)
        whole, unknown = g.Mul(counts, block), (0,) * x.rank
        old = _blocks_in_front(x.order, unknown, unknown)
        new = _split_blocks(y.order, unknown, unknown)
        stored = g.Gather(whole, g.ints(y.order), axis=0)
        made = _reorder_dynamic_parts(g, x.value, old, new, counts, block, stored)
        first, cut = (g.Gather(edges, g.scalar(end, DType.INT64), axis=1) for end in (0, 1))
        at, last = g.ints([y.axis(axis) for axis in range(y.rank)]), g.Sub(whole, cut)
        return g.with_compute_type("Slice", x.dtype, lambda v: g.Slice(v, first, last, at), made)
