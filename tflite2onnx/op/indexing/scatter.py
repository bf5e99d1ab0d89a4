"""SCATTER_ND, SPARSE_TO_DENSE and segment reductions: elements are written to indices."""

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    expect,
    expect_indices,
    expect_list,
    integer,
    ints,
    read_shape,
    require_equal_shapes,
)
from tflite2onnx.op.traits import DynamicShape, Foldable, Movement
from tflite2onnx.tensor import Array, DType, Shape
from tflite2onnx.utils.dimension import is_known, require_equal, require_number

# Element types that ScatterND of runtimes does not add, and the type of their sums. Cast wraps the
# sums around.
_WIDE = {DType.INT8: DType.INT32, DType.UINT8: DType.INT32, DType.BOOL: DType.INT32}


class ScatterNd(Movement):
    """SCATTER_ND: the sums of updates at their indices, in a tensor that is 0 elsewhere."""

    codes = ("SCATTER_ND",)
    shape_inputs = (2,)
    operands = "int32, T:float32|uint8|int8|int32|int64|bool, any -> T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        indices, updates, shape = self.input(0), self.input(1), read_shape(self, 2)
        if indices.rank and is_known(indices.shape[-1]):
            rest = shape[indices.shape[-1] :]
            for size, other in zip(updates.shape, (*indices.shape[:-1], *rest), strict=False):
                if not isinstance(other, Unknown):
                    require_equal(size, other, f"{updates.name} must have an update for each index")
        return [shape]

    def check(self) -> None:
        indices, updates = self.input(0), self.input(1)
        if self.has_data_dependent_shape:
            expect_list(self, 2, self.input(2).elements)
            return
        shape = ints(self, 2)
        if not indices.rank or not 0 < indices.shape[-1] <= len(shape):
            raise OperatorError(
                f"the last axis of {indices.name} must have 1 to {len(shape)} elements, "
                f"got the shape {list(indices.shape)}"
            )
        depth = indices.shape[-1]
        expect(updates, (*indices.shape[:-1], *shape[depth:]), updates.dtype)
        expect_indices(indices, shape[:depth])

    def emit(self, g: Builder, y: View, indices: View, updates: View, shape: View) -> Value:
        dtype = _WIDE.get(y.dtype, y.dtype)
        # The zeros are computed: as a constant, a few bytes of a file could declare a shape of any
        # size.
        zeros = g.Expand(g.scalar(0, dtype), g.as_int64_list(shape))
        vectors = g.cast(indices, DType.INT64)
        output = g.scatter_nd(zeros, vectors, g.recast(updates, y.dtype, dtype), "add")
        return g.recast(output, dtype, y.dtype)


class SparseToDense(Movement, Foldable):
    """SPARSE_TO_DENSE: values at their indices, a default value elsewhere.

    An index is a row of the indices, or a single number if the output has one axis. The last value
    of equal indices is used.
    """

    codes = ("SPARSE_TO_DENSE",)
    shape_inputs = (1,)
    operands = "index, any, T:float32|int32|int64|int8|uint8, T [1*] -> T"

    @cached_property
    def _index_shape(self) -> Shape:
        """The shape of the indices as a matrix with a row for each value."""
        indices, rank = self.input(0), self.output.rank
        shape = indices.shape if indices.rank == 2 else (indices.elements, 1)
        if indices.rank > 2 or shape[1] != rank:
            raise OperatorError(
                f"{indices.name} must have a row of {rank} elements for each value, "
                f"got the shape {list(indices.shape)}"
            )
        return shape

    def infer_outputs(self) -> Sequence[OutputShape]:
        indices, values, shape = self.input(0), self.input(2), read_shape(self, 1)
        if indices.rank == 2:
            message = f"{indices.name} must have an index for each of {len(shape)} axes"
            require_number(indices.shape[1], len(shape), message)
        if indices.rank and values.rank:
            message = f"{values.name} must have a value for each index"
            require_equal(indices.shape[0], values.shape[0], message)
        return [shape]

    def check(self) -> None:
        values = self.input(2)
        if self.has_data_dependent_shape:
            expect_list(self, 1, self.input(1).elements)
        expect(values, self._index_shape[:1] if values.rank else (), values.dtype)
        if not self.has_data_dependent_shape:
            expect_indices(self.input(0), self.output.shape)

    def emit(
        self, g: Builder, y: View, indices: View, shape: View, values: View, default: View
    ) -> Value:
        vectors = g.reshape(indices, [-1, self._index_shape[1]])
        vectors = g.recast(vectors, indices.dtype, DType.INT64)
        count = g.runtime_shape(indices.sizes[:1], indices) if indices.rank else g.ints([1])
        updates = values.value if values.rank else g.Expand(values, count)
        background = g.Expand(default.reshape(()), g.as_int64_list(shape))
        return g.scatter_nd(background, vectors, updates)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        indices, shape, values, default = inputs
        dense = np.full(shape.reshape(-1), default.reshape(()), values.dtype)
        dense[tuple(indices.reshape(self._index_shape).T)] = values
        return [dense]


class Segments(DynamicShape):
    """UNSORTED_SEGMENT_*: reduces all rows with the same segment number to one row.

    Rows with a negative number belong to no segment. An empty segment has the initial value of the
    reduction, which is finite in the kernels. SEGMENT_SUM takes numbers that rise from 0 in steps
    of 0 or 1; the last number is the number of segments - 1.

    Attributes:
        gaps: whether sorted numbers may rise by more than 1.
    """

    # The reduction of ScatterND, and its initial value: a number, or "min" or "max" of the type.
    rows: ClassVar[dict[str, tuple[str, int | str]]] = {
        "SEGMENT_SUM": ("add", 0),
        "UNSORTED_SEGMENT_SUM": ("add", 0),
        "UNSORTED_SEGMENT_PROD": ("mul", 1),
        "UNSORTED_SEGMENT_MAX": ("max", "min"),
        "UNSORTED_SEGMENT_MIN": ("min", "max"),
    }
    operands = "T:float32|int32, int32, int32~? [1*] -> T"
    gaps: ClassVar[bool] = False

    @property
    def is_sorted(self) -> bool:
        """Whether numbers are sorted, so that the last number determines the number of segments."""
        return self.op.code == "SEGMENT_SUM"

    @property
    def has_data_dependent_shape(self) -> bool:
        return not self.is_sorted and not self.input(2).is_constant

    @property
    def _is_counted(self) -> bool:
        """Whether the number of segments depends on sorted numbers that are not constant."""
        return self.is_sorted and self.input(1).data is None

    def infer_outputs(self) -> Sequence[OutputShape]:
        data, numbers = self.input(0).shape, self.input(1).shape
        unknown = self._is_counted or self.has_data_dependent_shape
        require_equal_shapes(data[: len(numbers)], numbers)
        return [(Unknown() if unknown else self._count, *data[len(numbers) :])]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return operand >= 0 or axis > 0 or self._is_counted or self.has_data_dependent_shape

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else range(self.input(1).rank)

    @cached_property
    def _count(self) -> int:
        """The number of segments; the declared number if it is known at run time only."""
        if not self.is_sorted and not self.has_data_dependent_shape:
            return integer(self, 2)
        if self._is_counted or self.has_data_dependent_shape:
            return self.output.shape[0] if self.output.rank else 0
        numbers = ints(self, 1)
        steps = {b - a for a, b in pairwise(numbers)}
        rises = bool(numbers) and numbers[0] >= 0 and numbers == sorted(numbers)
        if not rises or (not self.gaps and (numbers[0] != 0 or not steps <= {0, 1})):
            required = (
                "be sorted and not negative" if self.gaps else "rise from 0 in steps of 0 or 1"
            )
            raise OperatorError(f"segment numbers must {required}, got {numbers}")
        return int(numbers[-1]) + 1

    def check(self) -> None:
        data, numbers = self.input(0), self.input(1)
        if not numbers.rank or (self.is_sorted and numbers.rank > 1):
            required = "one axis" if self.is_sorted else "at least one axis"
            raise OperatorError(f"{numbers.name} must have {required}, got {numbers.rank}")
        expect(numbers, data.shape[: numbers.rank], numbers.dtype)
        constant = None if self.has_data_dependent_shape else numbers.data
        largest = -1 if constant is None else max(constant.reshape(-1).tolist(), default=-1)
        if self._count < 0 or largest >= self._count:
            raise OperatorError(
                f"segment numbers of {numbers.name} must be less than {self._count}, got {largest}"
            )

    def emit(self, g: Builder, y: View, data: View, numbers: View, *count: View) -> Value:
        reduction, start = self.row
        limits: Any = (np.finfo if y.dtype.is_float else np.iinfo)(y.dtype.numpy)
        initial = start if isinstance(start, int) else getattr(limits, start)
        # Rows without a segment are added to an additional last row, at index -1, which is removed.
        rest, end = g.runtime_shape(y.sizes[1:], data), g.ints([y.shape[0]])
        row = g.Max(g.cast(numbers, DType.INT64), -1)
        if self._is_counted or self.has_data_dependent_shape:
            last = g.reduce("ReduceMax", row, [0], keepdims=True)
            sizes = [g.cast(n.reshape((1,)), DType.INT64) for n in count]
            end = g.Add(last, [1]) if self._is_counted else sizes[0]
        rows = g.Concat(g.Add(end, [1]), rest, axis=0)
        into = g.Expand(g.scalar(initial, y.dtype), rows)
        places = g.Unsqueeze(row, [numbers.rank])
        reduced = g.scatter_nd(into, places, data, reduction)
        return g.Slice(reduced, [0], end, [0])
