"""SCATTER_ND, SPARSE_TO_DENSE and the sums of segments: elements sent where an index says."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import (
    count_listed_axes,
    expect,
    expect_indices,
    expect_list,
    expect_rank,
    expect_type,
    integer,
    ints,
)
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape

_TYPES = (
    DType.FLOAT32,
    DType.UINT8,
    DType.INT8,
    DType.INT32,
    DType.INT64,
    DType.BOOL,
)
_SPARSE_TYPES = (DType.FLOAT32, DType.INT32, DType.INT64, DType.INT8, DType.UINT8)
_INDICES = (DType.INT32, DType.INT64)
# Types that ONNX Runtime does not add up, and what holds their sums; Cast wraps these around.
_WIDE = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.BOOL: DType.INT32}


def _fill_shape(g: Builder, number: float, dtype: DType, shape: Shape) -> Value:
    # Not a constant: a few bytes of a file can declare a shape of any size.
    return g.Expand(g.scalar(number, dtype), g.ints(shape))


def _as_int64_list(g: Builder, count: View) -> Value:
    return g.cast(count.reshape((1,)), DType.INT64)


class ScatterNd(DynamicShape):
    """SCATTER_ND: updates added up at their indices, in a tensor that is 0 elsewhere."""

    codes = ("SCATTER_ND",)
    dynamic_axes = "..."
    shape_inputs = (2,)
    category = Category.TERMINATE
    moves_only = True

    def check(self) -> None:
        indices, updates = self.input(0), self.input(1)
        expect_type(indices, (DType.INT32,))
        expect_type(updates, _TYPES)
        if self.has_data_dependent_shape:
            expect_list(self, 2, self.input(2).elements)
            expect_rank(self.output, count_listed_axes(self, 2), updates.dtype)
            return
        shape = ints(self, 2)
        expect(self.output, shape, updates.dtype)
        if not indices.rank or not 0 < indices.shape[-1] <= len(shape):
            raise OperatorError(f"indices of the shape {list(indices.shape)} for {len(shape)} axes")
        depth = indices.shape[-1]
        expect(updates, (*indices.shape[:-1], *shape[depth:]), updates.dtype)
        expect_indices(indices, shape[:depth])

    def emit(self, g: Builder, y: View, indices: View, updates: View, shape: View) -> Value:
        wide = _WIDE.get(y.dtype, y.dtype)
        if self.has_data_dependent_shape:
            zeros = g.Expand(g.scalar(0, wide), g.as_int64_list(shape))
        else:
            zeros = _fill_shape(g, 0, wide, y.shape)
        where = g.cast(indices, DType.INT64)
        made = g.scatter_nd(zeros, where, g.recast(updates, y.dtype, wide), "add")
        return g.recast(made, wide, y.dtype)


class SparseToDense(DynamicShape):
    """SPARSE_TO_DENSE: values at their indices, another value elsewhere.

    An index is a row of the indices, or one number for a list. Of equal indices the last counts.
    """

    codes = ("SPARSE_TO_DENSE",)
    shape_inputs = (1,)
    dynamic_axes = "..."
    category = Category.TERMINATE
    moves_only = True

    @cached_property
    def _index_shape(self) -> Shape:
        """The shape of the indices with an index for each value."""
        indices, rank = self.input(0), self.output.rank
        shape = indices.shape if indices.rank == 2 else (indices.elements, 1)
        if indices.rank > 2 or shape[1] != rank:  # rows of numbers
            raise OperatorError(f"indices of the shape {list(indices.shape)} for {rank} axes")
        return shape

    def check(self) -> None:
        indices, values, default = self.input(0), self.input(2), self.input(3)
        expect_type(indices, _INDICES)
        expect_type(values, _SPARSE_TYPES)
        expect(default, (1,) * default.rank, values.dtype)
        if self.has_data_dependent_shape:
            expect_list(self, 1, self.input(1).elements)
            expect_rank(self.output, count_listed_axes(self, 1), values.dtype)
        else:
            expect(self.output, ints(self, 1), values.dtype)
        expect(values, self._index_shape[:1] if values.rank else (), values.dtype)
        if not self.has_data_dependent_shape:
            expect_indices(indices, self.output.shape)

    def emit(
        self, g: Builder, y: View, indices: View, shape: View, values: View, default: View
    ) -> Value:
        where = g.reshape(indices, [-1, self._index_shape[1]])
        where = g.recast(where, indices.dtype, DType.INT64)
        count = g.runtime_shape(indices.sizes[:1], indices) if indices.rank else g.ints([1])
        updates = values.value if values.rank else g.Expand(values, count)
        everywhere = g.Expand(default.reshape(()), g.as_int64_list(shape))
        return g.scatter_nd(everywhere, where, updates)


class Segments(DynamicShape):
    """UNSORTED_SEGMENT_*: what has the same number is added, multiplied, or compared.

    Numbers below 0 belong to no segment. A segment without elements has what the reduction
    starts with: the kernels' largest and smallest numbers are finite. SEGMENT_SUM is the same
    with numbers that rise one by one, the last of which says how many segments there are.

    Attributes:
        types: the element types that the kernel takes, and `numbering` those of the numbers.
        gaps: sorted numbers may leave some out.
    """

    # The reduction of ScatterND, and what it starts with: a number, or a limit of the type.
    starts: ClassVar[dict[str, tuple[str, int | str]]] = {
        "SEGMENT_SUM": ("add", 0),
        "UNSORTED_SEGMENT_SUM": ("add", 0),
        "UNSORTED_SEGMENT_PROD": ("mul", 1),
        "UNSORTED_SEGMENT_MAX": ("max", "min"),
        "UNSORTED_SEGMENT_MIN": ("min", "max"),
    }
    codes = tuple(starts)
    category = Category.TERMINATE
    types: ClassVar[tuple[DType, ...]] = (DType.FLOAT32, DType.INT32)
    numbering: ClassVar[tuple[DType, ...]] = (DType.INT32,)
    gaps: ClassVar[bool] = False

    @property
    def is_sorted(self) -> bool:
        """Whether numbers rise, and the last says how many segments there are."""
        return self.op.code == "SEGMENT_SUM"

    @property
    def has_data_dependent_shape(self) -> bool:
        return not self.is_sorted and not self.input(2).is_constant

    @property
    def data_dependent_axes(self) -> list[int]:
        return [0]

    @property
    def _is_counted(self) -> bool:
        """Whether it is the last of numbers that are not constant which says how many there are."""
        return self.is_sorted and self.input(1).data is None

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        return [[(0, 0)]] if self._is_counted else super().data_dependent_dims()

    def infer_outputs(self) -> Sequence[Shape] | None:
        if not self._is_counted:
            return None
        return [(max(self.output.shape[:1], default=1) or 1, *self.input(0).shape[1:])]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        if operand < 0:
            return (self._is_counted or self.has_data_dependent_shape) and axis == 0
        return axis < self.input(1).rank

    @cached_property
    def _count(self) -> int:
        """The number of segments, as far as it is known."""
        if not self.is_sorted and not self.has_data_dependent_shape:
            return integer(self, 2)
        if self._is_counted or self.has_data_dependent_shape:
            return self.output.shape[0] if self.output.rank else 0
        numbers = ints(self, 1)
        steps = {b - a for a, b in pairwise(numbers)}
        rises = min(steps, default=0) >= 0 and numbers[:1] >= [0]
        if not rises or (not self.gaps and (numbers[0] != 0 or not steps <= {0, 1})):
            raise OperatorError(f"the segments {numbers} do not rise from 0 one by one")
        return numbers[-1] + 1

    def check(self) -> None:
        data, numbers = self.input(0), self.input(1)
        expect_type(data, self.types)
        expect_type(numbers, self.numbering)
        if not numbers.rank or (self.is_sorted and numbers.rank > 1):
            raise OperatorError(f"{numbers.name} has {numbers.rank} axes")
        expect(numbers, data.shape[: numbers.rank], numbers.dtype)
        if self.has_data_dependent_shape:
            expect(self.input(2), (1,) * self.input(2).rank, DType.INT32)
        known = None if self.has_data_dependent_shape else numbers.data
        found = [] if known is None else known.reshape(-1).tolist()
        if self._count < 0 or max(found, default=-1) >= self._count:
            raise OperatorError(f"{numbers.name} has a number outside of {self._count} segments")
        expect(self.output, (self._count, *data.shape[numbers.rank :]), data.dtype)

    def emit(self, g: Builder, y: View, data: View, numbers: View, *count: View) -> Value:
        reduction, start = self.starts[self.op.code]
        limits: Any = (np.finfo if y.dtype.is_float else np.iinfo)(y.dtype.numpy)
        first = start if isinstance(start, int) else getattr(limits, start)
        # One row more, which is cut off again, for what belongs to no segment: row -1.
        rest, end = y.shape[1:], g.ints([y.shape[0]])
        rows = g.ints([y.shape[0] + 1, *rest])
        known = g.Max(g.cast(numbers, DType.INT64), g.scalar(-1, DType.INT64))
        if self._is_counted or self.has_data_dependent_shape:
            last = g.reduce("ReduceMax", known, [0], keepdims=True)
            end = g.Add(last, g.ints([1])) if self._is_counted else _as_int64_list(g, *count)
            rows = g.Concat(g.Add(end, g.ints([1])), g.ints(rest), axis=0)
        into = g.Expand(g.scalar(first, y.dtype), rows)
        where = g.Unsqueeze(known, g.ints([numbers.rank]))
        made = g.scatter_nd(into, where, data, reduction)
        return g.Slice(made, g.ints([0]), end, g.ints([0]))
