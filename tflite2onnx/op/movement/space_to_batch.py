"""Blocks of pixels become batches (SPACE_TO_BATCH_ND) or channels (SPACE_TO_DEPTH), and back."""

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.layout import Order, make_identity
from tflite2onnx.made_options import BlockOptions
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import MOST_COMPUTED, expect, expect_list, ints, read_pairs
from tflite2onnx.op.common.runtime_shapes import emit_sizes, multiply_sizes, take_entries
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.op.traits import Foldable, Movement, MovesSamples
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.dimension import Dim, is_known

_RANKS = (3, 4)
# A part of an axis: the axis, and whether the part is the position within a block.
_Part = tuple[int, bool]


class _Batches(Movement, MovesSamples):
    """Base of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND.

    The axes are a batch axis, one or two spatial axes, and a channel axis.

    The position in a block is the outer part of the batch axis: all first pixels of blocks come
    before all second pixels.
    """

    operands = "T, any [n], any -> T"
    shape_inputs = (1, 2)
    tflite = "... -> ..."

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        is_computed = operand or not self.input(1).is_constant
        return None if is_computed else range(1, self.input(0).rank - 1)

    def check(self) -> None:
        if not self.has_data_dependent_shape:
            return
        x = self.input(0)
        if x.rank not in _RANKS:
            raise OperatorError(f"{x.name} must have 3 or 4 axes, got {x.rank}")
        expect_list(self, 1, x.rank - 2)
        expect(self.input(2), (x.rank - 2, 2), self.input(1).dtype)

    def _read_block_and_edges(self, g: Builder, block: View, edges: View) -> tuple[Value, Value]:
        """Return `_block` and `_edges` as int64 values, constant where the inputs are constant."""
        zeros = np.zeros((1, 2), np.int64)
        if block.tensor.is_constant:
            sizes = g.ints(self._block)
        else:
            sizes = g.Concat([1], g.as_int64_list(block), [1], axis=0)
        if edges.tensor.is_constant:
            return sizes, g.constant(np.array(self._edges, np.int64))
        return sizes, g.Concat(zeros, g.as_int64_rows(edges), zeros, axis=0)

    @cached_property
    def _block(self) -> list[int]:
        """The size of a block along each axis, 1 along the batch axis and the channel axis."""
        rank, sizes = self.input(0).rank, ints(self, 1)
        if rank not in _RANKS or len(sizes) != rank - 2 or min(sizes) < 1:
            raise OperatorError(
                f"block_shape must be a positive integer for each spatial axis of a tensor of 3 or "
                f"4 axes, got {sizes} for {rank} axes"
            )
        return [1, *sizes, 1]

    @cached_property
    def _edges(self) -> list[tuple[int, int]]:
        """The padding, or the crops, before and after the elements of each axis."""
        return [(0, 0), *read_pairs(self, 2, self.input(0).rank - 2), (0, 0)]

    def _divide_sizes(self, sizes: Sequence[int], divisors: Sequence[int]) -> list[int]:
        pairs = list(zip(sizes, divisors, strict=True))
        if any(is_known(size) and size % block for size, block in pairs):
            raise OperatorError(f"sizes must be divisible by {list(divisors)}, got {list(sizes)}")
        return [size // block for size, block in pairs]


def _split_blocks(order: Order) -> list[_Part]:
    """Return the axes, each spatial axis split in two: blocks, and positions in a block."""
    last = len(order) - 1
    return [(axis, inner) for axis in order for inner in (False, True)[: 1 + (0 < axis < last)]]


def _move_blocks_to_front(order: Order) -> list[_Part]:
    """Return the axes of `_split_blocks` with the positions in a block before the batch."""
    parts = [(axis, False) for axis in order]
    batch, spaces = order.index(0), [(axis, True) for axis in range(1, len(order) - 1)]
    return [*parts[:batch], *spaces, *parts[batch:]]


def _reorder_parts(
    g: Builder,
    value: Value,
    old: Sequence[_Part],
    new: Sequence[_Part],
    counts: Value,
    block: Value,
    shape: Value,
) -> Value:
    """Split a value into parts, transpose them, and merge them to a shape.

    `counts` and `block` are the numbers and the sizes of the blocks along all axes.
    """
    rank = len(old) - sum(inner for _, inner in old)
    places = [axis + rank * inner for axis, inner in old]
    sizes = g.Gather(g.Concat(counts, block, axis=0), g.ints(places), axis=0)
    split = g.reshape_to_sizes(value, sizes)
    moved = g.Transpose(split, perm=[old.index(part) for part in new])
    return g.reshape_to_sizes(moved, shape)


def _spread_over_batch(g: Builder, block: Value, rank: int) -> Value:
    """Return the factor of each axis of the batches: the pixels of a block, then 1."""
    return g.Concat(multiply_sizes(g, block), [1] * (rank - 1), axis=0)


class SpaceToBatch(_Batches):
    """SPACE_TO_BATCH_ND: each position in a block of pixels becomes a batch of its own."""

    codes = ("SPACE_TO_BATCH_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The batch of the image, the number of blocks along each spatial axis, the channels."""
        block, pairs = self._block, zip(self.input(0).shape, self._edges, strict=True)
        sizes = [size + sum(pads) for size, pads in pairs]
        if prod(size for size in sizes if is_known(size)) > MOST_COMPUTED:
            raise OperatorError(f"the padded sizes must have at most 2**62 elements, got {sizes}")
        return tuple(self._divide_sizes(sizes, block))

    def infer_outputs(self) -> Sequence[OutputShape]:
        if self.has_data_dependent_shape:
            return [[Unknown() for _ in self.input(0).shape]]
        batch, *rest = self._sizes
        return [(batch * prod(self._block), *rest)]

    def count_before_samples(self, outer: Dim) -> Dim | None:
        return outer * prod(self._block)

    def emit(self, g: Builder, y: View, x: View, block: View, edges: View) -> Value:
        sides, pads = self._read_block_and_edges(g, block, edges)
        padded = g.Add(emit_sizes(g, x), g.reduce("ReduceSum", pads, [1], keepdims=False))
        counts = g.Div(padded, sides)
        whole = g.Mul(counts, _spread_over_batch(g, sides, x.rank))
        shape = g.Gather(whole, g.ints(y.order), axis=0)
        old, new = _split_blocks(x.order), _move_blocks_to_front(y.order)
        return _reorder_parts(g, self._pad_edges(g, x, pads), old, new, counts, sides, shape)

    def _pad_edges(self, g: Builder, x: View, edges: Value) -> Value:
        if edges.data is not None and not edges.data.any():
            return x.value
        amounts = g.Transpose(g.Gather(edges, g.ints(x.order), axis=0), perm=[1, 0])
        fill = g.scalar(x.storage.zero_point, x.dtype)
        return g.pad(x.dtype, x, g.reshape(amounts, [2 * x.rank]), fill)


class BatchToSpace(_Batches):
    """BATCH_TO_SPACE_ND: batches become the positions in blocks of pixels."""

    codes = ("BATCH_TO_SPACE_ND",)

    @cached_property
    def _sizes(self) -> Shape:
        """The batch of the image, the number of blocks along each spatial axis, the channels."""
        (batch, *rest) = self.input(0).shape
        return (*self._divide_sizes([batch], [int(np.prod(self._block))]), *rest)

    @cached_property
    def _uncropped_sizes(self) -> list[int]:
        return [size * block for size, block in zip(self._sizes, self._block, strict=True)]

    def infer_outputs(self) -> Sequence[OutputShape]:
        if self.has_data_dependent_shape:
            return [[Unknown() for _ in self.input(0).shape]]
        pairs = zip(self._uncropped_sizes, self._edges, strict=True)
        return [[size - sum(crops) for size, crops in pairs]]

    def check(self) -> None:
        super().check()
        (shape,) = self.infer_outputs()
        if not self.has_data_dependent_shape and min(shape) < 0:
            raise OperatorError(
                f"crops must not exceed the sizes {self._uncropped_sizes}, got {self._edges}"
            )

    def count_before_samples(self, outer: Dim) -> Dim | None:
        blocks, rest = divmod(outer, prod(self._block))
        return None if rest != 0 else blocks

    def emit(self, g: Builder, y: View, x: View, block: View, edges: View) -> Value:
        sides, crops = self._read_block_and_edges(g, block, edges)
        counts = g.Div(emit_sizes(g, x), _spread_over_batch(g, sides, x.rank))
        whole = g.Mul(counts, sides)
        old, new = _move_blocks_to_front(x.order), _split_blocks(y.order)
        shape = g.Gather(whole, g.ints(y.order), axis=0)
        merged = _reorder_parts(g, x.value, old, new, counts, sides, shape)
        axes = [a for a in range(y.rank) if crops.data is None or crops.data[a].any()]
        if not axes:
            return merged
        first, cropped = (g.Gather(crops, end, axis=1) for end in (0, 1))
        bounds = (take_entries(g, bound, axes) for bound in (first, g.Sub(whole, cropped)))
        return g.move("Slice", x.dtype, merged, *bounds, [y.axis(axis) for axis in axes])


class Blocks(ImageOperator, Foldable):
    """Base of SPACE_TO_DEPTH and DEPTH_TO_SPACE.

    The channels of one pixel of a block are consecutive, ONNX's mode DCR. Runtimes implement the
    nodes for few types besides float32. Images of other types are moved by rows, with channels
    last.
    """

    operands = "T -> T"
    quantization = Moves()

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return self.input(0).dtype is DType.FLOAT32 or axis < self.input(0).rank - 1

    def swap_rows(self, g: Builder, y: View, x: View, split: Sequence[int]) -> Value:
        """Return the pixels [rows, a, b, c] as [rows, b, a, c]; `split` is (a, b, c)."""
        last = make_identity(x.rank)

        def swap_axes(value: View | Value) -> Value:
            pixels = value if x.order == last else g.Transpose(value, perm=[0, 2, 3, 1])
            if {1, 2} & y.tensor.symbols.keys():
                swapped = self.swap_dynamic_axes(g, pixels)
            else:
                swapped = g.reshape(self.swap_axes(g, pixels, split), y.with_order(last).sizes)
            return swapped if y.order == last else g.Transpose(swapped, perm=[0, 3, 1, 2])

        return g.with_compute_type("Gather", x.dtype, swap_axes, x)

    def swap_axes(self, g: Builder, pixels: View | Value, split: Sequence[int]) -> Value:
        """Return [rows, b, a, c] of pixels whose elements are those of [rows, a, b, c]."""
        return g.Transpose(g.reshape(pixels, [-1, *split]), perm=[0, 2, 1, 3])

    def swap_dynamic_axes(self, g: Builder, pixels: View | Value) -> Value:
        """Return the result for pixels [n, h, w, c] of any height and width."""
        raise NotImplementedError

    def scale_image(self, g: Builder, op_type: str, pixels: View | Value) -> Value:
        """Return the batch, and the height and width of pixels times or divided by the block."""
        size = self.read_block()
        image = g.Slice(g.Shape(pixels), [0], [3])
        return g.node(op_type, image, [1, size, size])

    def read_block(self) -> int:
        """Return the height and width of a block, in pixels."""
        size = int(self.options.block_size)
        if size < 1:
            raise OperatorError(f"block_size must be at least 1, got {size}")
        return size


class DepthToSpace(Blocks):
    """DEPTH_TO_SPACE: channels become the pixels of blocks.

    For float32 elements passes may set `BlockOptions.mode`.
    """

    codes = ("DEPTH_TO_SPACE",)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, size = self.sizes(0), self.read_block()
        return [(x["N"], x["H"] * size, x["W"] * size, x["C"] // (size * size))]

    def check(self) -> None:
        x, size = self.sizes(0), self.read_block()
        if x["C"] % (size * size):
            raise OperatorError(f"channels must be a multiple of {size * size}, got {x['C']}")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = self.read_block()
        mode = self.op.read_made(BlockOptions).mode
        if x.dtype is DType.FLOAT32:
            return g.DepthToSpace(x, blocksize=size, mode=mode)
        return self.move_rows(g, y, x)

    def move_rows(self, g: Builder, y: View, x: View) -> Value:
        """Return the pixels of blocks, moved by rows."""
        size = self.read_block()
        return self.swap_rows(g, y, x, (x.size("W"), size, size * y.size("C")))

    def swap_dynamic_axes(self, g: Builder, pixels: View | Value) -> Value:
        size, channels = self.read_block(), self.output.shape[-1]
        blocks = g.Reshape(pixels, [0, 0, 0, size, size * channels])
        rows = g.Transpose(blocks, perm=[0, 1, 3, 2, 4])
        image = self.scale_image(g, "Mul", pixels)
        return g.Reshape(rows, g.Concat(image, [channels], axis=0))

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        (n, h, w, _), (*_, c) = inputs[0].shape, self.output.shape
        size = self.read_block()
        if self.op.read_made(BlockOptions).mode == "CRD":
            pixels = inputs[0].reshape(n, h, w, c, size, size).transpose(0, 1, 4, 2, 5, 3)
        else:
            pixels = inputs[0].reshape(n, h, w, size, size, c).swapaxes(2, 3)
        return [pixels.reshape(self.output.shape)]


class SpaceToDepth(Blocks):
    """SPACE_TO_DEPTH: the pixels of blocks become channels."""

    codes = ("SPACE_TO_DEPTH",)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, size = self.sizes(0), self.read_block()
        return [(x["N"], x["H"] // size, x["W"] // size, x["C"] * size * size)]

    def check(self) -> None:
        x, size = self.sizes(0), self.read_block()
        if x["H"] % size or x["W"] % size:
            sizes = f"{x['H']} and {x['W']}"
            raise OperatorError(f"height and width must be multiples of {size}, got {sizes}")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = self.read_block()
        if x.dtype is DType.FLOAT32:
            return g.SpaceToDepth(x, blocksize=size)
        return self.swap_rows(g, y, x, (size, y.size("W"), size * x.size("C")))

    def swap_dynamic_axes(self, g: Builder, pixels: View | Value) -> Value:
        size, channels = self.read_block(), self.input(0).shape[-1]
        image = self.scale_image(g, "Div", pixels)
        rows, columns = (g.Slice(image, [i], [j]) for i, j in ((0, 2), (2, 3)))
        split = g.Concat(rows, [size], columns, [size * channels], axis=0)
        blocks = g.Transpose(g.Reshape(pixels, split), perm=[0, 1, 3, 2, 4])
        return g.Reshape(blocks, [0, 0, 0, size * size * channels])

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        n, h, w, _ = self.output.shape
        size = self.read_block()
        blocks = inputs[0].reshape(n, h, size, w, -1).swapaxes(2, 3)
        return [blocks.reshape(self.output.shape)]
