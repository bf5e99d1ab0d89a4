"""Reductions of the rows of each segment: TFLite's operators, and TensorFlow's."""

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from tflite2onnx.operators import (
    Builder,
    DType,
    DynamicShape,
    OperatorError,
    OutputShape,
    Unknown,
    Value,
    View,
    expect,
    integer,
    ints,
)
from tflite2onnx.sizes import require_equal_shapes


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


class FlexSegments(Segments):
    """FlexSegmentSum, FlexUnsortedSegmentSum and their variants: see UNSORTED_SEGMENT_SUM.

    Sorted segment numbers may have gaps. Empty segments are 1 for products, and 0 for all others.
    """

    rows: ClassVar[dict[str, tuple[str, int | str]]] = {
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
    operands = "T:float32|float64|int32|int64, index, int32~? [1*] -> T"
    gaps = True

    @property
    def is_sorted(self) -> bool:
        return self.op.code.startswith("FlexSegment")

    def emit(self, g: Builder, y: View, data: View, numbers: View, *count: View) -> Value:
        reduced = super().emit(g, y, data, numbers, *count)
        if self.op.code not in ("FlexSegmentMax", "FlexSegmentMean", "FlexSegmentMin"):
            return reduced
        ones = g.Expand(1, g.Shape(numbers))
        ids = g.Unsqueeze(g.recast(numbers, numbers.dtype, DType.INT64), [1])
        rows = g.Slice(g.Shape(reduced), [0], [1])
        counts = g.scatter_nd(g.Expand(0, rows), ids, ones, "add")
        counts = g.Unsqueeze(counts, [*range(1, y.rank)]) if y.rank > 1 else counts
        if self.op.code == "FlexSegmentMean":
            divisors = g.Max(counts, 1)
            return g.Div(reduced, g.recast(divisors, DType.INT64, y.dtype))
        return g.Where(g.Greater(counts, 0), reduced, g.scalar(0, y.dtype))
