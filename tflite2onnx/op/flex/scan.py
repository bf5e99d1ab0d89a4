"""TensorFlow's operators that go along an axis: products of all so far, numbers in equal steps."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import axis_of, check_element_count, expect, expect_type, integer
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType

_TYPES = {
    "FlexCumprod": (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64),
    "FlexCumulativeLogsumexp": (DType.FLOAT32, DType.FLOAT64),
}


class FlexCumulative(DynamicShape):
    """FlexCumprod and FlexCumulativeLogsumexp: products, or sums of exponentials, so far.

    Each is without its own element if `exclusive`, and from the end on if `reverse`. In each step
    all elements take in what is twice as far away as in the step before.

    Products of float32 are those of float64, rounded: of elements in the middle the product may
    be too large, or too small, where that of all so far is not.
    """

    codes = tuple(_TYPES)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _axis(self) -> int:
        return axis_of(integer(self, 1), self.input(0).rank)

    def check(self) -> None:
        x, _ = self.input(0), self._axis
        expect_type(x, _TYPES[self.op.code])
        expect(self.output, x.shape, x.dtype)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return operand in (0, ~0) and axis != self._axis

    def emit(self, g: Builder, y: View, x: View, _: View) -> Value:
        wide = self.op.code == "FlexCumprod" and x.dtype is DType.FLOAT32
        dtype = DType.FLOAT64 if wide else x.dtype
        value, reach = g.recast(x, x.dtype, dtype), 1
        while reach < x.shape[self._axis]:
            value = self._combine(g, value, self._shift_elements(g, value, reach, dtype), dtype)
            reach *= 2
        if self.options.get("exclusive", False):
            value = self._shift_elements(g, value, 1, dtype)
        return g.recast(value, dtype, x.dtype)

    def _shift_elements(self, g: Builder, value: Value, by: int, dtype: DType) -> Value:
        """Return elements moved along, and what changes nothing in their place."""
        nothing = 1.0 if self.op.code == "FlexCumprod" else -np.inf
        before, behind = ([0] * self.input(0).rank for _ in range(2))
        forth, back = (behind, before) if self.options.get("reverse", False) else (before, behind)
        forth[self._axis], back[self._axis] = by, -by
        return g.Pad(value, g.ints([*before, *behind]), g.scalar(nothing, dtype))

    def _combine(self, g: Builder, a: Value, b: Value, dtype: DType) -> Value:
        if self.op.code == "FlexCumprod":
            return g.Mul(a, b)
        # Not the sum of exponentials, which may be infinite.
        far = g.Where(g.Equal(a, b), g.scalar(0, dtype), g.Abs(g.Sub(a, b)))
        apart = g.Exp(g.Neg(far))
        return g.Add(g.Max(a, b), g.Log(g.Add(apart, g.scalar(1, dtype))))


class FlexLinSpace(Operator):
    """FlexLinSpace: so many numbers in equal steps from one to another."""

    codes = ("FlexLinSpace",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _count(self) -> int:
        count = integer(self, 2)
        check_element_count(count)
        if count < 1:
            raise OperatorError(f"{count} numbers")
        return count

    def check(self) -> None:
        start = self.input(0)
        expect_type(start, (DType.FLOAT32, DType.FLOAT64))
        for i in range(2):
            expect(self.input(i), (), start.dtype)
        expect(self.output, (self._count,), start.dtype)

    def emit(self, g: Builder, y: View, start: View, stop: View, _: View) -> Value:
        if self._count == 1:
            return g.reshape(start, [1])
        steps = g.scalar(self._count - 1, y.dtype)
        step = g.Div(g.Sub(stop, start), steps)
        all_but_last = np.arange(self._count - 1).astype(y.dtype.numpy)
        made = g.Add(start, g.Mul(step, g.constant(all_but_last)))
        return g.Concat(made, g.reshape(stop, [1]), axis=0)
