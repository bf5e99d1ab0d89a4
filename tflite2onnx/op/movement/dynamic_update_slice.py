"""DYNAMIC_UPDATE_SLICE: a slice of a tensor is replaced."""

from collections.abc import Collection, Sequence
from functools import cached_property
from math import prod

import numpy as np

from tflite2onnx.made_options import UpdateOptions
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import expect
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import emit_sizes, take_entries
from tflite2onnx.op.traits import Foldable, Movement
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import require_number

# ScatterND copies a tensor once. It copies nothing if input and output share memory, as caches of
# language models do. Slice and Concat copy the tensor twice. For each row of indices ScatterND
# takes as long as a copy of about this number of elements (docs/runtime-faults.md).
_ELEMENTS_PER_ROW = 64


class DynamicUpdateSlice(Movement, Foldable):
    """Replaces the slice of a tensor that begins at the start indices with an update.

    Start indices are clamped so that the update fits in. An update that is much smaller than the
    tensor is written by ScatterND. A larger update is written between slices of the tensor by
    Concat.

    Rows of tokens (`UpdateOptions`) have start indices of their own, [tokens, axes], which must be
    within the tensor.
    """

    codes = ("DYNAMIC_UPDATE_SLICE",)
    operands = "T [...], T, index -> T [...]"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis({2: 0}, data=(0, 1))

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, starts = self.input(0), self.input(2)
        for size in starts.shape[self._has_tokens :]:
            require_number(size, x.rank, f"{starts.name} must have a start for each axis")
        return super().infer_outputs()

    @property
    def _has_tokens(self) -> bool:
        """Whether the update has the rows of tokens."""
        return self.op.read_made(UpdateOptions).is_causal and self.input(2).rank > 1

    @cached_property
    def _max_starts(self) -> list[int]:
        """The largest start index along each axis."""
        x, update = self.input(0), self.input(1)
        largest = [a - b for a, b in zip(x.shape, update.shape, strict=False)]
        if x.rank != update.rank or min(largest, default=0) < 0:
            raise OperatorError(
                f"the update {update.name} must fit into {list(x.shape)}, "
                f"got the shape {list(update.shape)}"
            )
        return largest

    def check(self) -> None:
        tokens = self.input(2).shape[: self._has_tokens]
        expect(self.input(2), (*tokens, len(self._max_starts)), self.input(2).dtype)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        pairs = enumerate(zip(self.input(0).shape, self.input(1).shape, strict=True))
        return None if operand > 1 else [axis for axis, (size, part) in pairs if size != part]

    def emit(self, g: Builder, y: View, x: View, update: View, starts: View) -> Value:
        if 0 in update.shape:
            return x.value
        sizes = zip(self.input(0).sizes, self.input(1).sizes, strict=True)
        axes = [axis for axis, (whole, part) in enumerate(sizes) if whole != part]
        if not axes:
            return update.value
        if self._has_tokens:
            return self._write_tokens(g, x, update, starts, *axes)
        parts = emit_sizes(g, update)
        place = self._clamp_starts(g, x, parts, starts), parts
        grid = self._list_coordinates(x, axes)
        if grid is not None:
            first = take_entries(g, place[0], x.order[: len(grid.shape) - 1])
            places = g.Add(g.constant(grid), first)
            return g.with_compute_type(
                "ScatterND", x.dtype, lambda a, b: g.scatter_nd(a, places, b), x, update
            )
        return g.with_compute_type(
            "Slice", x.dtype, lambda a, b: self._replace_part(g, a, b, x, axes, place), x, update
        )

    def _write_tokens(self, g: Builder, x: View, update: View, starts: View, axis: int) -> Value:
        """Return the tensor with a row for each token along an axis."""
        count = 1 + x.axis(axis)
        sizes = (*x.reorder(self.input(1).shape)[: count - 1], 1)
        grid = g.constant(np.moveaxis(np.indices(sizes, np.int64), 0, -1))
        indices = g.recast(starts, starts.dtype, DType.INT64)
        places = g.Add(grid, g.Gather(indices, g.ints(x.order[:count]), axis=1))
        return g.with_compute_type(
            "ScatterND", x.dtype, lambda a, b: g.scatter_nd(a, places, b), x, update
        )

    def _list_coordinates(self, x: View, axes: Sequence[int]) -> Array | None:
        """Return the index of each row of the update within the update, int64, for ScatterND.

        A row has all axes after the last of `axes` in the stored order. Returns None if ScatterND
        would take longer than Slice and Concat, or if sizes are dynamic.
        """
        if x.tensor.symbols or self.input(1).symbols:
            return None
        count = 1 + max(x.axis(axis) for axis in axes)
        sizes = x.reorder(self.input(1).shape)[:count]
        if prod(sizes) * _ELEMENTS_PER_ROW > prod(x.shape):
            return None
        return np.moveaxis(np.indices(sizes, np.int64), 0, -1)

    def _clamp_starts(self, g: Builder, x: View, parts: Value, starts: View) -> Value:
        """Return the clamped start indices, one for each TFLite axis, int64."""
        indices = g.recast(starts, starts.dtype, DType.INT64)
        largest = g.Sub(emit_sizes(g, x), parts)
        if starts.dtype is DType.INT32:  # Max and Min of runtimes compare 32 bits of int64
            return g.Min(g.Max(indices, 0), largest)
        return g.clamp_int64(indices, 0, largest)

    def _replace_part(
        self,
        g: Builder,
        value: Value,
        update: Value,
        x: View,
        axes: Sequence[int],
        place: tuple[Value, Value],
    ) -> Value:
        """Return a value in which the update replaces a part; it is smaller along `axes` only.

        `place` has the start indices and the sizes of the update, of all axes.

        Along the first axis, the elements before and after the update are kept. The slice between
        them is replaced by recursion over the other axes.
        """
        axis, *rest = axes
        stored = [x.axis(axis)]
        first, part = (g.Slice(numbers, [axis], [axis + 1]) for numbers in place)
        last = g.Add(first, part)
        if rest:
            middle = g.Slice(value, first, last, stored)
            update = self._replace_part(g, middle, update, x, rest, place)
        before = g.Slice(value, [0], first, stored)
        size = self.input(0).sizes[axis]
        end = np.iinfo(np.int64).max if isinstance(size, str) else size
        after = g.Slice(value, last, [int(end)], stored)
        return g.Concat(before, update, after, axis=x.axis(axis))

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        output, update = inputs[0].copy(), inputs[1]
        first = np.clip(inputs[2], 0, self._max_starts)
        slices = tuple(slice(a, a + n) for a, n in zip(first, update.shape, strict=True))
        output[slices] = update
        return [output]
