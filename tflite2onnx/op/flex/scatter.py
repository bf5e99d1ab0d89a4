"""TensorFlow's operators that send elements where an index says: counts, segments, updates."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type, integer, ints
from tflite2onnx.op.indexing.scatter import Segments
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import Array, DType

_INDICES = (DType.INT32, DType.INT64)
_ADDED = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)


class FlexTensorScatter(DynamicShape):
    """FlexTensorScatterUpdate and its like: a tensor with updates where indices say.

    Of equal indices the last update counts, where updates are not added or compared.
    """

    reductions: ClassVar[dict[str, str | None]] = {
        "FlexTensorScatterAdd": "add",
        "FlexTensorScatterMax": "max",
        "FlexTensorScatterMin": "min",
        "FlexTensorScatterSub": "add",
        "FlexTensorScatterUpdate": None,
    }
    codes = tuple(reductions)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    def check(self) -> None:
        x, indices, updates = (self.input(i) for i in range(3))
        expect_type(indices, _INDICES)
        if self.reductions[self.op.code] is not None:
            expect_type(x, _ADDED)
        depth = indices.shape[-1] if indices.rank else 0
        if not 0 < depth <= x.rank:
            raise OperatorError(f"indices of the shape {list(indices.shape)} for {x.rank} axes")
        expect(updates, (*indices.shape[:-1], *x.shape[depth:]), x.dtype)
        expect(self.output, x.shape, x.dtype)

    def emit(self, g: Builder, y: View, x: View, indices: View, updates: View) -> Value:
        value = g.Neg(updates) if self.op.code == "FlexTensorScatterSub" else updates.value
        where = g.recast(indices, indices.dtype, DType.INT64)
        return g.scatter_nd(x, where, value, self.reductions[self.op.code])


class FlexSegments(Segments):
    """FlexSegmentSum, FlexUnsortedSegmentSum and their like: see UNSORTED_SEGMENT_SUM.

    Sorted numbers may leave some out: of these segments products are 1 and all else is 0.
    """

    starts: ClassVar[dict[str, tuple[str, int | str]]] = {
        "FlexSegmentMax": ("max", "min"),
        "FlexSegmentMean": ("add", 0),
        "FlexSegmentMin": ("min", "max"),
        "FlexSegmentProd": ("mul", 1),
        "FlexSegmentSum": ("add", 0),
        "FlexUnsortedSegmentMax": ("max", "min"),
        "FlexUnsortedSegmentMin": ("min", "max"),
        "FlexUnsortedSegmentProd": ("mul", 1),
        "FlexUnsortedSegmentSum": ("add", 0),
    }
    codes = tuple(starts)
    custom = True
    types = _ADDED
    numbering = _INDICES
    gaps = True

    @property
    def is_sorted(self) -> bool:
        return self.op.code.startswith("FlexSegment")

    def emit(self, g: Builder, y: View, data: View, numbers: View, *count: View) -> Value:
        made = super().emit(g, y, data, numbers, *count)
        if self.op.code not in ("FlexSegmentMax", "FlexSegmentMean", "FlexSegmentMin"):
            return made
        ones = g.Expand(g.scalar(1, DType.INT64), g.Shape(numbers))
        where = g.Unsqueeze(g.recast(numbers, numbers.dtype, DType.INT64), g.ints([1]))
        rows = g.Slice(g.Shape(made), g.ints([0]), g.ints([1]))
        counts = g.scatter_nd(g.Expand(g.scalar(0, DType.INT64), rows), where, ones, "add")
        counts = g.Unsqueeze(counts, g.ints(range(1, y.rank))) if y.rank > 1 else counts
        if self.op.code == "FlexSegmentMean":
            return g.Div(
                made, g.recast(g.Max(counts, g.scalar(1, DType.INT64)), DType.INT64, y.dtype)
            )
        return g.Where(g.Greater(counts, g.scalar(0, DType.INT64)), made, g.scalar(0, y.dtype))


class FlexBincount(DynamicShape):
    """FlexBincount and FlexDenseBincount: how often each number occurs, or with what weights.

    A matrix is counted row by row by the latter, as one list by the former.
    """

    codes = ("FlexBincount", "FlexDenseBincount")
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    @cached_property
    def _size(self) -> int:
        size = integer(self, 1)
        check_element_count(size)
        if size < 0:
            raise OperatorError(f"{size} numbers")
        return size

    @property
    def _by_rows(self) -> bool:
        return self.op.code == "FlexDenseBincount" and self.input(0).rank > 1

    def check(self) -> None:
        x, weights = self.input(0), self.input(2)
        expect_type(x, _INDICES)
        expect_type(weights, _ADDED)
        if self.op.code == "FlexDenseBincount" and x.rank not in (1, 2):
            raise OperatorError(f"{x.name} has {x.rank} axes")
        if weights.elements:
            expect(weights, x.shape, weights.dtype)
            if self.options.get("binary_output", False):
                raise OperatorError("it tells whether numbers occur, whatever they weigh")
        lead = x.shape[:1] if self._by_rows else ()
        expect(self.output, (*lead, self._size), weights.dtype)

    def emit(self, g: Builder, y: View, x: View, _: View, weights: View) -> Value:
        # What is too large is counted behind all others, and cut off.
        room = g.scalar(self._size + 1, DType.INT64)
        zero, one = (g.scalar(i, DType.INT64) for i in range(2))
        numbers = g.recast(x, x.dtype, DType.INT64)
        numbers = g.Min(numbers, g.scalar(self._size, DType.INT64))
        rows = one
        if self._by_rows:
            rows = g.Gather(g.Shape(x), zero, axis=0)
            firsts = g.Mul(g.Range(zero, rows, one), room)
            numbers = g.Add(numbers, g.Unsqueeze(firsts, g.ints([1])))
        where = g.reshape(numbers, [-1, 1])
        into = g.Expand(g.scalar(0, y.dtype), g.reshape(g.Mul(rows, room), [1]))
        weighted = bool(weights.tensor.elements)
        added = (
            g.reshape(weights, [-1])
            if weighted
            else g.Expand(g.scalar(1, y.dtype), g.reshape(g.Size(x), [1]))
        )
        binary = self.options.get("binary_output", False)
        counts = g.scatter_nd(into, where, added, None if binary else "add")
        table = g.reshape(counts, [-1, self._size + 1])
        found = g.Slice(table, g.ints([0]), g.ints([self._size]), g.ints([1]))
        return found if self._by_rows else g.Squeeze(found, g.ints([0]))


class FlexDynamicStitch(Operator):
    """FlexDynamicStitch: rows of some tensors, in the sequence that constant indices say."""

    codes = ("FlexDynamicStitch", "FlexParallelDynamicStitch")
    custom = True
    category = Category.TERMINATE

    @property
    def _rows(self) -> Array:
        """Which row, of those of all tensors, each row is; of equal indices the last counts."""
        half = len(self.op.inputs) // 2
        places = [place for i in range(half) for place in ints(self, i)]
        count = max(places, default=-1) + 1
        is_complete = min(places, default=0) == 0 and len({*places}) == count
        if not is_complete or len(self.op.inputs) % 2:
            raise OperatorError(f"indices {places}, which leave some out")
        rows = np.empty(count, np.int64)
        for row, place in enumerate(places):
            rows[place] = row
        return rows

    def check(self) -> None:
        half = len(self.op.inputs) // 2
        rows, last = self._rows, self.input(len(self.op.inputs) - 1)
        rest = last.shape[self.input(half - 1).rank :]
        for i in range(half):
            data = self.input(half + i)
            expect(data, (*self.input(i).shape, *rest), last.dtype)
        expect(self.output, (len(rows), *rest), last.dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        half = len(xs) // 2
        data = [
            g.reshape(x, (indices.tensor.elements, *y.shape[1:]))
            for indices, x in zip(xs[:half], xs[half:], strict=True)
        ]
        together = g.Concat(*data, axis=0) if len(data) > 1 else data[0]
        return g.Gather(together, self._rows, axis=0)


class FlexInvertPermutation(DynamicShape):
    """FlexInvertPermutation: where in a permutation each number stands."""

    codes = ("FlexInvertPermutation",)
    custom = True
    category = Category.TERMINATE
    dynamic_axes = "..."

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, _INDICES)
        expect(x, (x.elements,), x.dtype)
        expect(self.output, x.shape, x.dtype)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        zero, one = (g.scalar(i, x.dtype) for i in range(2))
        places = g.Range(zero, g.recast(g.Size(x), DType.INT64, x.dtype), one)
        return g.ScatterElements(x, g.recast(x, x.dtype, DType.INT64), places, axis=0)
