"""TensorFlow's operators that compare elements to find a position, a rank or equal elements."""

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DataDependentSize,
    DType,
    DynamicShape,
    Movement,
    OperatorError,
    OutputShape,
    Value,
    View,
    axis_of,
    expect_rank,
    ints,
)

_TYPES = "float32|float64|int32|int64"


class FlexUnique(Movement):
    """FlexUniqueV2 and FlexUniqueWithCounts: different elements or rows, and their numbers.

    Outputs are the different elements, or parts along an axis, the index of each one of the input,
    and how often each of the different ones occurs.
    """

    codes = ("FlexUniqueV2", "FlexUniqueWithCounts", "FlexUniqueWithCountsV2")
    operands = "T:float32|int8|uint8|int16|int32|int64, index? -> T, index, index?"

    @cached_property
    def _axis(self) -> int:
        axes = ints(self, 1) if len(self.op.inputs) > 1 else []
        if not axes:
            expect_rank(self.input(0), 1)
        return axis_of(int((axes or [0])[0]), self.input(0).rank)

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape, axis, size = self.input(0).shape, self._axis, DataDependentSize()
        parts = (*shape[:axis], size, *shape[axis + 1 :])
        return [parts, (shape[axis],), (size,)][: len(self.op.outputs)]

    def check(self) -> None:
        _ = self._axis  # the property raises OperatorError

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *_: View) -> tuple[Value, ...]:
        dtype = g.compute_type("Unique", x.dtype)
        operand = g.recast(x, x.dtype, dtype)
        values, __, indices, counts = g.node_outputs(
            "Unique", 4, operand, sorted=0, axis=self._axis if x.rank > 1 else None
        )
        numbers = zip((indices, counts), ys[1:], strict=False)
        return (
            g.recast(values, dtype, x.dtype),
            *(g.recast(number, DType.INT64, y.dtype) for number, y in numbers),
        )


class FlexListDiff(AnySizes):
    """FlexListDiff: the elements of a list that another list lacks, and their indices."""

    codes = ("FlexListDiff",)
    operands = f"T:{_TYPES} [n], T [m] -> T, index"

    def infer_outputs(self) -> Sequence[OutputShape]:
        size = DataDependentSize()
        return [(size,), (size,)]

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, other: View) -> tuple[Value, ...]:
        equal = g.Equal(g.Unsqueeze(x, [1]), g.Unsqueeze(other, [0]))
        matches = g.reduce("ReduceSum", g.cast(equal, DType.INT64), [1], keepdims=False)
        kept = g.Equal(matches, 0)
        indices = g.Compress(g.Range(0, g.Size(x), 1), kept, axis=0)
        return g.Compress(x, kept, axis=0), g.recast(indices, DType.INT64, ys[1].dtype)


class FlexBounds(AnySizes):
    """FlexLowerBound and FlexUpperBound: where each value belongs in a sorted row.

    The position is the number of elements that are less than the value, or not greater than it.
    """

    rows: ClassVar[dict[str, str]] = {"FlexLowerBound": "Less", "FlexUpperBound": "LessOrEqual"}
    tflite = "NA, NB -> NB"
    operands = f"T:{_TYPES} [rows n], T [rows values] -> index [rows values]"

    def emit(self, g: Builder, y: View, row: View, values: View) -> Value:
        elements, each = g.Unsqueeze(row, [1]), g.Unsqueeze(values, [2])
        before = g.cast(g.node(self.row, elements, each), DType.INT32)
        count = g.reduce("ReduceSum", before, [2], keepdims=False)
        return g.recast(count, DType.INT32, y.dtype)


class FlexInTopK(AnySizes):
    """FlexInTopK and FlexInTopKV2: whether less than k classes are more probable than the target.

    The answer is false if the target is no class, or if a prediction is not finite.
    """

    codes = ("FlexInTopK", "FlexInTopKV2")
    tflite = "NA, N -> N"
    operands = "float32 [batch classes], index [batch], index? [1*] -> bool [batch]"

    def check(self) -> None:
        if (len(self.op.present) == 2) is not ("k" in self.options):
            raise OperatorError("it must have k either as an attribute or as an input")

    def emit(self, g: Builder, y: View, predictions: View, targets: View, *k: View) -> Value:
        classes = g.Gather(g.Shape(predictions), 1)
        target = g.recast(targets, targets.dtype, DType.INT64)
        valid = g.And(g.GreaterOrEqual(target, 0), g.Less(target, classes))
        column = g.Unsqueeze(g.Where(valid, target, 0), [1])
        own = g.GatherElements(predictions, column, axis=1)
        better = g.cast(g.Greater(predictions, own), DType.INT64)
        count = g.reduce("ReduceSum", better, [1], keepdims=False)
        odd = g.cast(g.Or(g.IsInf(predictions), g.IsNaN(predictions)), DType.INT64)
        valid = g.And(valid, g.Equal(g.reduce("ReduceSum", odd, [1], keepdims=False), 0))
        if k:
            most = g.recast(k[0].reshape(()), k[0].dtype, DType.INT64)
        else:
            most = g.scalar(self.options.k, DType.INT64)
        return g.And(valid, g.Less(count, most))


class FlexCTCGreedyDecoder(DynamicShape):
    """FlexCTCGreedyDecoder: the most probable class of each step, without blanks.

    Outputs are the indices, the values and the shape of a sparse matrix of classes, and the negated
    sum of the largest logits of each sequence. With `merge_repeated` equal classes of successive
    steps are one.
    """

    codes = ("FlexCTCGreedyDecoder",)
    operands = (
        "T:float32|float64 [time batch classes], int32 [batch]"
        "-> int64, int64, int64 [2], T [batch 1]"
    )
    dynamic_axes = "..."

    def infer_outputs(self) -> Sequence[OutputShape]:
        size, batch = DataDependentSize(), self.input(0).shape[1]
        return [(size, 2), (size,), (2,), (batch, 1)]

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return operand != 0 or axis < 2  # the classes determine the blank

    def check(self) -> None:
        if 0 in self.input(0).shape[::2]:
            shape = list(self.input(0).shape)
            raise OperatorError(f"its logits must have steps and classes, got {shape}")

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, lengths: View) -> tuple[Value, ...]:
        blank, classes = int(self.options.get("blank_index", -1)), x.shape[2]
        blank = blank + classes if blank < 0 else blank
        steps = g.Range(0, g.Gather(g.Shape(x), 0), 1)
        end = g.Unsqueeze(g.cast(lengths, DType.INT64), [1])
        running = g.Less(g.Unsqueeze(steps, [0]), end)  # [batch, time]
        best = g.Transpose(g.ArgMax(x, axis=2, keepdims=0), perm=[1, 0])
        kept = g.And(running, g.Not(g.Equal(best, blank)))
        if self.options.get("merge_repeated", False):
            shifted = g.Pad(best, [0, 1, 0, 0], -1)
            before = g.Slice(shifted, [0], [-1], [1])
            kept = g.And(kept, g.Not(g.Equal(best, before)))
        counts = g.CumSum(g.cast(kept, DType.INT64), 1)
        places = g.Transpose(g.NonZero(kept), perm=[1, 0])
        rows = g.Slice(places, [0], [1], [1])
        columns = g.Unsqueeze(g.Sub(g.GatherND(counts, places), 1), [1])
        longest = g.reshape(g.reduce("ReduceMax", counts, [0, 1], keepdims=False), [1])
        shape = g.Concat(g.Gather(g.Shape(x), [1]), longest, axis=0)
        logits = g.Transpose(g.reduce("ReduceMax", x, [2], keepdims=False), perm=[1, 0])
        summed = g.Where(running, logits, g.scalar(0, x.dtype))
        total = g.Neg(g.reduce("ReduceSum", summed, [1], keepdims=True))
        values = g.GatherND(best, places)
        return g.Concat(rows, columns, axis=1), values, shape, total
