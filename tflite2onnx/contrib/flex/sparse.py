"""TensorFlow's operators on ragged and sparse tensors, whose parts are dense tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from tflite2onnx.op.base import (
    Builder,
    DataDependentSize,
    OperatorError,
    OutputShape,
    Unknown,
    Value,
    View,
)
from tflite2onnx.op.common.checks import check_element_count, ints
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.tensor import DType

_I64 = DType.INT64
_WAYS = (["ROW_SPLITS"], ["FIRST_DIM_SIZE", "VALUE_ROWIDS"])


class FlexRaggedTensorToTensor(AnySizes):
    """FlexRaggedTensorToTensor: the rows of a ragged tensor, filled or cut to one length.

    The rows are given by the position where each begins, or by the number of the row of each value.
    """

    codes = ("FlexRaggedTensorToTensor",)
    operands = "index~, T, T, index* -> T"
    shape_inputs = (0,)

    @property
    def _ways(self) -> list[str]:
        return [str(way) for way in self.options.get("row_partition_types", [])]

    @cached_property
    def _sizes(self) -> list[Any]:
        """The two sizes that the file gives, None where there is none."""
        if self.has_data_dependent_shape:
            return [None, None]
        sizes = ints(self, 0) if self.input(0).rank else []
        return [None if n < 0 else n for n in sizes[:2]] or [None, None]

    @property
    def _count(self) -> Any:  # noqa: ANN401 - a size or an unknown size
        """The number of rows."""
        if self._sizes[0] is not None:
            return self._sizes[0]
        if self._ways == _WAYS[0]:
            return self.input(3).shape[0] - 1
        first = self.input(3).data
        return DataDependentSize() if first is None else first.item()

    def infer_outputs(self) -> Sequence[OutputShape]:
        width = self._sizes[1]
        longest = DataDependentSize() if width is None else width
        return [(self._count, longest, *self.input(1).shape[1:])]

    def check(self) -> None:
        shape, values = self.input(0), self.input(1)
        if self._ways not in _WAYS:
            raise OperatorError(
                f"its row_partition_types must be {' or '.join(map(str, _WAYS))}, got {self._ways}"
            )
        if self.has_data_dependent_shape or (shape.rank and shape.elements != values.rank + 1):
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
        zero, one = (g.scalar(n, _I64) for n in range(2))
        lists = [g.recast(part, part.dtype, _I64) for part in parts]
        if self._ways == _WAYS[0]:
            (splits,) = lists
            count = g.Sub(g.Gather(g.Shape(splits), zero), one)
        else:
            count = g.reshape(lists[0], [])
            edges = g.Unsqueeze(g.Range(zero, g.Add(count, one), one), g.ints([1]))
            before = g.cast(g.Less(g.Unsqueeze(lists[1], g.ints([0])), edges), _I64)
            splits = g.reduce("ReduceSum", before, [1], keepdims=False)
        begins = g.Slice(splits, g.ints([0]), g.ints([-1]))
        ends = g.Slice(splits, g.ints([1]), g.Shape(splits))
        rows, width = self._sizes
        # Rows behind the last row are empty.
        last = g.Slice(splits, g.ints([-1]), g.Shape(splits))
        longest = g.scalar(width, _I64) if width is not None else None
        if longest is None:
            # A list of no rows has no largest element.
            lengths = g.Concat(g.Sub(ends, begins), g.ints([0]), axis=0)
            longest = g.reduce("ReduceMax", lengths, [0], keepdims=False)
        if rows is not None:
            more = g.Max(g.Sub(g.scalar(rows, _I64), count), zero)
            fill = g.Expand(last, g.reshape(more, [1]))
            begins, ends = (
                g.Slice(g.Concat(v, fill, axis=0), g.ints([0]), g.ints([rows]))
                for v in (begins, ends)
            )
        columns = g.Unsqueeze(g.Range(zero, longest, one), g.ints([0]))
        place = g.Add(g.Unsqueeze(begins, g.ints([1])), columns)
        present = g.Less(place, g.Unsqueeze(ends, g.ints([1])))
        # The default is one more value, behind the last.
        number = g.Gather(g.Shape(values), zero)
        place = g.Where(present, place, number)
        row = g.Concat(g.ints([1]), g.Slice(g.Shape(values), g.ints([1]), g.ints([9])), axis=0)
        return g.Gather(g.Concat(values, g.Expand(default, row), axis=0), place, axis=0)


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
            g.Gather(g.recast(places, places.dtype, _I64), g.scalar(axis, _I64), axis=1)
            for axis in (int(first), int(not first))
        )
        matrix = g.Transpose(b, perm=[1, 0]) if second else b.value
        rows = g.Mul(g.Gather(matrix, taken, axis=0), g.Unsqueeze(values, g.ints([1])))
        shape = g.Concat(
            g.Gather(g.recast(sizes, sizes.dtype, _I64), g.ints([int(first)])),
            g.Slice(g.Shape(matrix), g.ints([1]), g.ints([2])),
            axis=0,
        )
        zeros = g.Expand(g.scalar(0, y.dtype), shape)
        return g.scatter_nd(zeros, g.Unsqueeze(into, g.ints([1])), rows, "add")
