"""TensorFlow's cumulative products and sums of exponentials, and equally spaced numbers."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Body,
    Builder,
    DType,
    Operator,
    OutputShape,
    Value,
    View,
    axis_of,
    expect_type,
    integer,
    prepend_axis,
    read_count,
)
from tflite2onnx.sizes import Sizes, take_entries

_MOST_STEPS = 31  # each doubles the reach: enough for 2^31 elements


class FlexCumulative(AnySizes):
    """FlexCumprod and FlexCumulativeLogsumexp: cumulative products, or sums of exponentials.

    `exclusive` excludes the element itself, and `reverse` accumulates from the end. The nodes are a
    parallel scan: each step combines elements at twice the distance of the step before. For a
    dynamic axis the steps are a Loop.

    Products of float32 are computed in float64, because the product of a subrange may overflow or
    underflow float32 where the cumulative product does not.
    """

    codes = ("FlexCumprod", "FlexCumulativeLogsumexp")
    operands = "T:float32|float64|int32|int64 [...], any -> T [...]"
    add_leading_axis = prepend_axis(axes=1)

    @cached_property
    def _axis(self) -> int:
        return axis_of(integer(self, 1), self.input(0).rank)

    def check(self) -> None:
        _ = self._axis  # the property raises OperatorError
        if self.op.code == "FlexCumulativeLogsumexp":
            expect_type(self.input(0), (DType.FLOAT32, DType.FLOAT64))

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (self._axis,)

    def emit(self, g: Builder, y: View, x: View, _: View) -> Value:
        is_wide = self.op.code == "FlexCumprod" and x.dtype is DType.FLOAT32
        dtype = DType.FLOAT64 if is_wide else x.dtype
        value, reach = g.recast(x, x.dtype, dtype), 1
        if self._axis in x.tensor.symbols:
            value, reach = self._scan_in_loop(g, value, dtype, x.sizes), x.shape[self._axis]
        while reach < x.shape[self._axis]:
            value = self._combine(g, value, self._shift_elements(g, value, reach, dtype), dtype)
            reach *= 2
        if self.options.get("exclusive", False):
            value = self._shift_elements(g, value, 1, dtype)
        return g.recast(value, dtype, x.dtype)

    def _scan_in_loop(self, g: Builder, start: Value, dtype: DType, sizes: Sizes) -> Value:
        """Return the elements after as many steps as the axis needs; the reach is carried."""
        reaches = [1 << step for step in range(_MOST_STEPS)]
        needed = g.Greater(take_entries(g, g.Shape(start), [self._axis]), reaches)
        steps = g.reduce("ReduceSum", g.cast(needed, DType.INT64), [0], keepdims=False)
        inner = g.make_nested()
        number, goes_on = (g.annotate(Value(dtype=t), t, ()) for t in (DType.INT64, DType.BOOL))
        value, reach = Value(dtype=dtype), g.annotate(Value(dtype=DType.INT64), DType.INT64, (1,))
        shifted = self._shift_elements(inner, g.annotate(value, dtype, sizes), reach, dtype)
        outputs = (
            g.annotate(inner.Identity(goes_on), DType.BOOL, ()),
            g.annotate(self._combine(inner, value, shifted, dtype), dtype, sizes),
            g.annotate(inner.Add(reach, reach), DType.INT64, (1,)),
        )
        body = Body("step", (number, goes_on, value, reach), tuple(inner.nodes), outputs, ())
        return g.node_outputs("Loop", 2, steps, None, start, [1], body=body)[0]

    def _shift_elements(self, g: Builder, value: Value, by: int | Value, dtype: DType) -> Value:
        """Return elements shifted along the axis, filled with the neutral element."""
        neutral = 1.0 if self.op.code == "FlexCumprod" else -np.inf
        before, after = ([0] * self.input(0).rank for _ in range(2))
        padded, cropped = (after, before) if self.options.get("reverse", False) else (before, after)
        padded[self._axis], cropped[self._axis] = 1, -1
        return g.Pad(value, g.Mul([*before, *after], by), g.scalar(neutral, dtype))

    def _combine(self, g: Builder, a: Value, b: Value, dtype: DType) -> Value:
        if self.op.code == "FlexCumprod":
            return g.Mul(a, b)
        # The difference avoids the sum of exponentials, which may overflow.
        difference = g.Where(g.Equal(a, b), g.scalar(0, dtype), g.Abs(g.Sub(a, b)))
        ratio = g.Exp(g.Neg(difference))
        return g.Add(g.Max(a, b), g.Log(g.Add(ratio, g.scalar(1, dtype))))


class FlexLinSpace(Operator):
    """FlexLinSpace: equally spaced numbers from start to stop."""

    codes = ("FlexLinSpace",)
    operands = "T:float32|float64 [], T [], any -> T"

    @cached_property
    def _count(self) -> int:
        return read_count(self, 2, "the number of values", least=1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(self._count,)]

    def emit(self, g: Builder, y: View, start: View, stop: View, _: View) -> Value:
        if self._count == 1:
            return g.reshape(start, [1])
        steps = g.scalar(self._count - 1, y.dtype)
        step = g.Div(g.Sub(stop, start), steps)
        all_but_last = np.arange(self._count - 1).astype(y.dtype.numpy)
        values = g.Add(start, g.Mul(step, g.constant(all_but_last)))
        return g.Concat(values, g.reshape(stop, [1]), axis=0)
