"""TensorFlow's operators on ragged and sparse tensors, whose parts are dense tensors."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DataDependentSize,
    DType,
    OperatorError,
    OutputShape,
    Unknown,
    Value,
    View,
    check_element_count,
    expect_input_count,
    ints,
)

_I64 = DType.INT64


class FlexRaggedTensorToTensor(AnySizes):
    """FlexRaggedTensorToTensor: the rows of a ragged tensor, filled or cut to one length.

    Each ragged axis has a partition: a list of the positions where the rows begin and the last one
    ends, or of the number of the row of each value (of the first axis after the number of rows).
    """

    codes = ("FlexRaggedTensorToTensor",)
    operands = "index~, T, T, index* -> T"
    shape_inputs = (0,)

    @cached_property
    def _ways(self) -> list[str]:
        return [str(way) for way in self.options.get("row_partition_types", [])]

    @property
    def _axes(self) -> int:
        """The number of ragged axes."""
        return len(self._ways) - (self._ways[:1] == ["FIRST_DIM_SIZE"])

    @cached_property
    def _sizes(self) -> list[Any]:
        """The number of rows and the lengths that the file gives, None where there is none."""
        count = 1 + self._axes
        if self.has_data_dependent_shape or not self.input(0).rank:
            return [None] * count
        return [None if n < 0 else n for n in ints(self, 0)[:count]]

    @property
    def _count(self) -> Any:  # noqa: ANN401 - a size or an unknown size
        if self._sizes[0] is not None:
            return self._sizes[0]
        if self._ways[0] == "ROW_SPLITS":
            return self.input(3).shape[0] - 1
        first = self.input(3).data
        return DataDependentSize() if first is None else first.item()

    def infer_outputs(self) -> Sequence[OutputShape]:
        lengths = (DataDependentSize() if n is None else n for n in self._sizes[1:])
        return [(self._count, *lengths, *self.input(1).shape[1:])]

    def check(self) -> None:
        shape, values = self.input(0), self.input(1)
        first, *others = self._ways or [""]
        if first == "FIRST_DIM_SIZE" and others:
            first, *others = others
        elif first != "ROW_SPLITS":
            first = ""
        if {first, *others} - {"ROW_SPLITS", "VALUE_ROWIDS"}:
            raise OperatorError(
                "its row_partition_types must be ROW_SPLITS, or FIRST_DIM_SIZE and VALUE_ROWIDS,"
                f" then one of ROW_SPLITS and VALUE_ROWIDS for each further axis, got {self._ways}"
            )
        expect_input_count(self, 3 + len(self._ways))
        axes = values.rank + self._axes
        if self.has_data_dependent_shape or (shape.rank and shape.elements != axes):
            raise OperatorError(
                f"{shape.name} must be a constant with a size for each axis, or the scalar -1"
            )
        check_element_count(sum(size or 0 for size in self._sizes))
        for tensor in self.op.inputs[3:]:
            if tensor is not None and tensor.rank > 1:
                raise OperatorError(f"{tensor.name} must be a list, got {list(tensor.shape)}")

    def emit(
        self, g: Builder, y: View, _: View, values: View, default: View, *parts: View
    ) -> Value:
        lists = [g.recast(part, part.dtype, _I64) for part in parts]
        if self._ways[0] == "ROW_SPLITS":
            count = g.Sub(g.Gather(g.Shape(lists[0]), 0), 1)
        else:
            count = g.reshape(lists.pop(0), [])
        rows, *lengths = self._sizes
        # The position of a row, the number of rows if there is none: a row without values.
        place = g.Range(0, count if rows is None else rows, 1)
        if rows is not None:
            place = g.Min(place, count)
        for way, part, length in zip(self._ways[-self._axes :], lists, lengths, strict=True):
            splits = part if way == "ROW_SPLITS" else _count_before(g, part, count)
            count = g.Gather(splits, -1)
            ends = g.Concat(g.Slice(splits, [1], g.Shape(splits)), g.reshape(count, [1]), axis=0)
            longest = length
            if length is None:
                longest = g.reduce("ReduceMax", g.Sub(ends, splits), [0], keepdims=False)
            begin, end = (g.Unsqueeze(g.Gather(v, place), [-1]) for v in (splits, ends))
            value = g.Add(begin, g.Range(0, longest, 1))
            place = g.Where(g.Less(value, end), value, count)
        # The default is one more value, after the last.
        row = g.Concat([1], g.Slice(g.Shape(values), [1], [9]), axis=0)
        return g.Gather(g.Concat(values, g.Expand(default, row), axis=0), place, axis=0)


def _count_before(g: Builder, numbers: Value, count: Value) -> Value:
    """Return for each row, and for the end, how many values are in earlier rows."""
    edges = g.Unsqueeze(g.Range(0, g.Add(count, 1), 1), [1])
    before = g.cast(g.Less(g.Unsqueeze(numbers, [0]), edges), _I64)
    return g.reduce("ReduceSum", before, [1], keepdims=False)


def _locate_values(g: Builder, lengths: Value) -> tuple[Value, Value, Value]:
    """Return where rows of given lengths begin and end, and of each value its row and place."""
    ends = g.CumSum(lengths, 0)
    splits = g.Concat([0], ends, axis=0)
    count = g.Range(0, g.Gather(splits, -1), 1)
    passed = g.LessOrEqual(g.Unsqueeze(ends, [0]), g.Unsqueeze(count, [1]))
    row = g.reduce("ReduceSum", g.cast(passed, _I64), [1], keepdims=False)
    return splits, row, g.Sub(count, g.Gather(splits, row))


class FlexRaggedRange(AnySizes):
    """FlexRaggedRange: rows of the numbers from a start to a limit; outputs are splits, values."""

    codes = ("FlexRaggedRange",)
    operands = "T:float32|float64|int32|int64, T, T -> index, T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        lists = [self.input(i) for i in range(3) if self.input(i).rank]
        return [(lists[0].shape[0] + 1 if lists else 2,), (DataDependentSize(),)]

    def check(self) -> None:
        for tensor in (self.input(i) for i in range(3)):
            if tensor.rank > 1:
                raise OperatorError(f"{tensor.name} must be a list, got {list(tensor.shape)}")

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View) -> tuple[Value, ...]:
        dtype = ys[1].dtype
        # A single number stands for all rows.
        rows = g.Mul(g.Mul(*xs[:2]), xs[2])
        if not any(x.rank for x in xs):
            rows = g.reshape(rows, [1])
        starts, limits, steps = (g.Expand(x, g.Shape(rows)) for x in xs)
        distance, step = (g.recast(v, dtype, DType.FLOAT64) for v in (g.Sub(limits, starts), steps))
        lengths = g.cast(g.Ceil(g.Div(distance, step)), _I64)
        splits, row, place = _locate_values(g, g.Max(lengths, 0))
        passed = g.Mul(g.recast(place, _I64, dtype), g.Gather(steps, row))
        return g.recast(splits, _I64, ys[0].dtype), g.Add(g.Gather(starts, row), passed)


class FlexRaggedGather(AnySizes):
    """FlexRaggedGather: rows of a tensor with one ragged axis; outputs are splits and values."""

    codes = ("FlexRaggedGather",)
    operands = "S:index [splits], T, I:index [n] -> S, T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [
            (self.input(2).shape[0] + 1,),
            (DataDependentSize(), *self.input(1).shape[1:]),
        ]

    def emit(
        self, g: Builder, ys: tuple[View, ...], splits: View, values: View, indices: View
    ) -> tuple[Value, ...]:
        given, rows = (g.recast(x, x.dtype, _I64) for x in (splits, indices))
        begins = g.Gather(given, rows)
        lengths = g.Sub(g.Gather(given, g.Add(rows, 1)), begins)
        made, row, place = _locate_values(g, lengths)
        taken = g.Gather(values, g.Add(g.Gather(begins, row), place), axis=0)
        return g.recast(made, _I64, ys[0].dtype), taken


class FlexSparseFillEmptyRows(AnySizes):
    """FlexSparseFillEmptyRows: a sparse tensor with a default in the first column of empty rows.

    Outputs are the indices and the values, in the order of rows, whether each row was empty, and
    the new place of each value.
    """

    codes = ("FlexSparseFillEmptyRows",)
    operands = "int64 [n axes], T [n], int64 [axes], T [1*] -> int64, T, bool, int64 [n]"
    shape_inputs = (2,)

    def infer_outputs(self) -> Sequence[OutputShape]:
        indices, size = self.input(0), DataDependentSize()
        rows = DataDependentSize() if self.has_data_dependent_shape else ints(self, 2)[0]
        return [(size, indices.shape[1]), (size,), (rows,), (indices.shape[0],)]

    def emit(
        self, g: Builder, ys: tuple[View, ...], places: View, values: View, sizes: View, other: View
    ) -> tuple[Value, ...]:
        rows = g.Gather(places, 0, axis=1)
        ones = g.Expand(1, g.Shape(rows))
        count = g.Gather(sizes, [0])
        none = g.Expand(0, count)
        counts = g.scatter_nd(none, g.Unsqueeze(rows, [1]), ones, "add")
        splits, row, _ = _locate_values(g, g.Max(counts, 1))
        # Values need not be in the order of rows: keys of row and place sort them.
        number = g.Range(0, g.Size(values), 1)
        keys = g.Add(g.Mul(rows, g.Size(values)), number)
        _, order = g.node_outputs("TopK", 2, keys, g.Shape(values), largest=0)
        sorted_rows = g.Gather(rows, order)
        first = g.Gather(g.CumSum(counts, 0, exclusive=1), sorted_rows)
        target = g.Add(g.Sub(number, first), g.Gather(splits, sorted_rows))
        target = g.ScatterElements(g.Mul(number, 0), order, target, axis=0)
        vectors = g.Unsqueeze(target, [1])
        start = g.Unsqueeze(row, [1])
        columns = g.Expand(0, g.Concat(g.Shape(row), g.Sub(g.Shape(sizes), 1), axis=0))
        start = g.Concat(start, columns, axis=1)
        filled = g.Expand(other.reshape(()), g.Shape(row))
        return (
            g.scatter_nd(start, vectors, places, None),
            g.scatter_nd(filled, vectors, values, None),
            g.Equal(counts, 0),
            target,
        )


class FlexSparseReduceSum(AnySizes):
    """FlexSparseReduceSum: sums of a sparse tensor over constant axes."""

    codes = ("FlexSparseReduceSum",)
    operands = "int64 [n axes], T:float32|float64|int32|int64 [n], int64 [axes], int32# -> T"
    shape_inputs = (2,)

    @cached_property
    def _summed(self) -> list[int]:
        rank = self.input(2).shape[0]
        return [axis % rank for axis in ints(self, 3)] or [*range(rank)]

    @property
    def _keeps_axes(self) -> bool:
        return bool(self.options.get("keep_dims", False))

    def infer_outputs(self) -> Sequence[OutputShape]:
        rank = self.input(2).shape[0]
        computed = self.has_data_dependent_shape
        sizes = [DataDependentSize() for _ in range(rank)] if computed else ints(self, 2)
        keeps, summed = self._keeps_axes, self._summed
        return [
            tuple(1 if i in summed else n for i, n in enumerate(sizes) if keeps or i not in summed)
        ]

    def emit(self, g: Builder, y: View, places: View, values: View, sizes: View, _: View) -> Value:
        dense = g.scatter_nd(g.Expand(g.scalar(0, y.dtype), sizes), places, values, "add")
        return g.reduce("ReduceSum", dense, self._summed, keepdims=self._keeps_axes)


class FlexSparseTensorDenseMatMul(AnySizes):
    """FlexSparseTensorDenseMatMul: the product of a sparse matrix and a matrix."""

    codes = ("FlexSparseTensorDenseMatMul",)
    operands = "index [n 2], T:float32|float64|int32 [n], int64 [2], T -> T"
    shape_inputs = (2,)

    @property
    def _turns(self) -> tuple[bool, bool]:
        """Whether the sparse matrix and the other matrix are transposed."""
        turned = (bool(self.options.get(f"adjoint_{name}", False)) for name in "ab")
        first, second = turned
        return first, second

    @property
    def _rows(self) -> Any:  # noqa: ANN401 - a size or an unknown size
        return Unknown() if self.has_data_dependent_shape else ints(self, 2)[self._turns[0]]

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(self._rows, self.input(3).shape[not self._turns[1]])]

    def check(self) -> None:
        b = self.input(3)
        if b.rank != 2:
            raise OperatorError(f"{b.name} must be a matrix, got {list(b.shape)}")

    def emit(self, g: Builder, y: View, places: View, values: View, sizes: View, b: View) -> Value:
        first, second = self._turns
        into, taken = (
            g.Gather(g.recast(places, places.dtype, _I64), axis, axis=1)
            for axis in (int(first), int(not first))
        )
        matrix = g.Transpose(b, perm=[1, 0]) if second else b.value
        rows = g.Mul(g.Gather(matrix, taken, axis=0), g.Unsqueeze(values, [1]))
        shape = g.Concat(
            g.Gather(g.recast(sizes, sizes.dtype, _I64), [int(first)]),
            g.Slice(g.Shape(matrix), [1], [2]),
            axis=0,
        )
        zeros = g.Expand(g.scalar(0, y.dtype), shape)
        return g.scatter_nd(zeros, g.Unsqueeze(into, [1]), rows, "add")
