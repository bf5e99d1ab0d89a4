"""TensorFlow's operators that scatter elements by indices: updates, counts, parts."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Array,
    Builder,
    DataDependentSize,
    DType,
    OperatorError,
    OutputShape,
    Tensor,
    Unknown,
    Value,
    View,
    expect,
    expect_type,
    ints,
    read_count,
)

_ADDED = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)


class FlexTensorScatter(AnySizes):
    """FlexTensorScatterUpdate and its variants: a tensor with updates at indices.

    Without a reduction the last update of equal indices is written.
    """

    rows: ClassVar[dict[str, str | None]] = {
        "FlexTensorScatterAdd": "add",
        "FlexTensorScatterMax": "max",
        "FlexTensorScatterMin": "min",
        "FlexTensorScatterSub": "add",
        "FlexTensorScatterUpdate": None,
    }
    operands = "T [...], index, T -> T [...]"

    def check(self) -> None:
        x, indices, updates = (self.input(i) for i in range(3))
        if self.row is not None:
            expect_type(x, _ADDED)
        depth = indices.shape[-1] if indices.rank else 0
        if not 0 < depth <= x.rank:
            raise OperatorError(
                f"the last size of {indices.name} must be from 1 to {x.rank}, got "
                f"{list(indices.shape)}"
            )
        expect(updates, (*indices.shape[:-1], *x.shape[depth:]), x.dtype)

    def emit(self, g: Builder, y: View, x: View, indices: View, updates: View) -> Value:
        value = g.Neg(updates) if self.op.code == "FlexTensorScatterSub" else updates.value
        vectors = g.recast(indices, indices.dtype, DType.INT64)
        return g.scatter_nd(x, vectors, value, self.row)


class FlexBincount(AnySizes):
    """FlexBincount and FlexDenseBincount: the count, or the sum of weights, of each number.

    FlexDenseBincount counts each row of a matrix, FlexBincount counts a matrix as one list.
    """

    codes = ("FlexBincount", "FlexDenseBincount")
    operands = "index, index [1*], T:float32|float64|int32|int64 -> T"
    shape_inputs = (1,)

    @cached_property
    def _size(self) -> int | Unknown:
        if self.has_data_dependent_shape:
            return DataDependentSize()
        return read_count(self, 1, "its size")

    @property
    def _by_rows(self) -> bool:
        return self.op.code == "FlexDenseBincount" and self.input(0).rank > 1

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*(self.input(0).shape[:1] if self._by_rows else ()), self._size)]

    def check(self) -> None:
        x, weights = self.input(0), self.input(2)
        if self.op.code == "FlexDenseBincount" and x.rank not in (1, 2):
            raise OperatorError(f"{x.name} must have 1 or 2 axes, got {x.rank}")
        if weights.elements:
            expect(weights, x.shape, weights.dtype)
            if self.options.get("binary_output", False):
                raise OperatorError("it must not have both binary_output and weights")

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return (1,) if self._by_rows and not self.has_data_dependent_shape else None

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        has_rows = other == ~0 or self.input(other).rank == 2
        return 0 if self._by_rows and axis == 0 and has_rows else None

    def emit(self, g: Builder, y: View, x: View, count: View, weights: View) -> Value:
        size = g.recast(count.reshape(()), count.dtype, DType.INT64)
        row_size = g.Add(size, 1)
        # Numbers of `size` and more are counted in an additional element, which is removed.
        numbers = g.Min(g.recast(x, x.dtype, DType.INT64), size)
        rows = g.scalar(1, DType.INT64)
        if self._by_rows:
            rows = g.Gather(g.Shape(x), 0, axis=0)
            firsts = g.Mul(g.Range(0, rows, 1), row_size)
            numbers = g.Add(numbers, g.Unsqueeze(firsts, [1]))
        ids = g.reshape(numbers, [-1, 1])
        zeros = g.Expand(g.scalar(0, y.dtype), g.reshape(g.Mul(rows, row_size), [1]))
        if weights.tensor.elements:
            updates = g.reshape(weights, [-1])
        else:
            updates = g.Expand(g.scalar(1, y.dtype), g.reshape(g.Size(x), [1]))
        binary = self.options.get("binary_output", False)
        counts = g.scatter_nd(zeros, ids, updates, None if binary else "add")
        columns, width = (g.reshape(n, [1]) for n in (size, row_size))
        table = g.reshape_to_sizes(counts, g.Concat([-1], width, axis=0))
        cropped = g.Slice(table, [0], columns, [1])
        return cropped if self._by_rows else g.Squeeze(cropped, [0])


class FlexDynamicPartition(AnySizes):
    """FlexDynamicPartition: for each number, the rows that have this number, in their order."""

    codes = ("FlexDynamicPartition",)
    operands = "T, int32 -> T*"

    @property
    def _axes(self) -> int:
        """The number of axes of the data that the numbers have."""
        return self.input(1).rank

    def infer_outputs(self) -> Sequence[OutputShape]:
        rest = self.input(0).shape[self._axes :]
        return [(DataDependentSize(), *rest) for _ in self.op.outputs]

    def check(self) -> None:
        data, numbers = self.input(0), self.input(1)
        expect(numbers, data.shape[: self._axes], numbers.dtype)
        if not self._axes:
            raise OperatorError(f"{numbers.name} must have at least 1 axis, got 0")

    def emit(
        self, g: Builder, ys: tuple[View, ...], data: View, numbers: View
    ) -> tuple[Value, ...]:
        rows, ids = data.value, numbers.value
        if self._axes > 1:
            rows = g.reshape(data, (-1, *data.sizes[self._axes :]))
            ids = g.reshape(numbers, [-1])
        places = (g.Equal(ids, g.scalar(i, numbers.dtype)) for i in range(len(ys)))
        return tuple(g.Compress(rows, place, axis=0) for place in places)


class FlexDynamicStitch(AnySizes):
    """FlexDynamicStitch: the rows of several tensors, in the order of indices.

    Rows that no computed index names are 0; TensorFlow leaves them undefined.
    """

    codes = ("FlexDynamicStitch", "FlexParallelDynamicStitch")

    @property
    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """The indices and the rows of each tensor."""
        half = len(self.op.inputs) // 2
        return [(self.input(i), self.input(half + i)) for i in range(half)]

    @property
    def _is_computed(self) -> bool:
        return not all(indices.has_data for indices, _ in self._pairs)

    @property
    def _rows(self) -> Array:
        """For each output row, its last index in the concatenated inputs."""
        places = [place for i in range(len(self._pairs)) for place in ints(self, i)]
        count = max(places, default=-1) + 1
        if not (min(places, default=0) == 0 and len({*places}) == count):
            raise OperatorError(
                f"its indices must be all numbers from 0 to the largest, got {places}"
            )
        rows = np.empty(count, np.int64)
        for row, place in enumerate(places):
            rows[place] = row
        return rows

    def infer_outputs(self) -> Sequence[OutputShape]:
        count = DataDependentSize() if self._is_computed else len(self._rows)
        indices, last = self._pairs[-1]
        return [(count, *last.shape[indices.rank :])]

    def check(self) -> None:
        if len(self.op.inputs) % 2:
            raise OperatorError(
                "it must have one tensor of data for each tensor of indices,"
                f" got {len(self.op.inputs)} inputs"
            )
        indices, last = self._pairs[-1]
        for ids, data in self._pairs:
            expect(data, (*ids.shape, *last.shape[indices.rank :]), last.dtype)
        expect_type(self.output, (last.dtype,))

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        half = len(xs) // 2
        rows = [
            x.value if ids.rank == 1 else g.reshape(x, (-1, *x.sizes[ids.rank :]))
            for ids, x in zip(xs[:half], xs[half:], strict=True)
        ]
        together = g.Concat(*rows, axis=0) if half > 1 else rows[0]
        if not self._is_computed:
            return g.Gather(together, self._rows, axis=0)
        lists = [g.recast(g.reshape(ids, [-1]), ids.dtype, DType.INT64) for ids in xs[:half]]
        places = g.Concat(*lists, axis=0) if half > 1 else lists[0]
        largest = g.reduce("ReduceMax", places, [0], keepdims=True)
        row = g.Slice(g.Shape(together), [1], [y.rank])
        shape = g.Concat(g.Add(largest, [1]), row, axis=0)
        zeros = g.Expand(g.scalar(0, y.dtype), shape)
        return g.scatter_nd(zeros, g.Unsqueeze(places, [1]), together, None)


class FlexInvertPermutation(AnySizes):
    """FlexInvertPermutation: the position of each number in a permutation."""

    codes = ("FlexInvertPermutation",)
    operands = "T:index [n] -> T [n]"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        zero, one = (g.scalar(i, x.dtype) for i in range(2))
        places = g.Range(zero, g.recast(g.Size(x), DType.INT64, x.dtype), one)
        return g.ScatterElements(x, g.recast(x, x.dtype, DType.INT64), places, axis=0)
