"""RANGE and CUMSUM: sequences of numbers, and cumulative sums."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import axis_of, check_element_count, integer
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.traits import AnySizes, Foldable
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import is_known


class Range(AnySizes, Foldable):
    """RANGE: numbers from a start in steps of `step`, up to a limit, which is excluded.

    The kernel adds steps one after another, so float rounding accumulates. Constant results are
    computed in the same way. If an input is known at run time only, the output is start + i * step,
    as in ONNX's Range.
    """

    codes = ("RANGE",)
    operands = "T:float32|int32|int64 [], T [], T [] -> T"
    shape_inputs = (0, 1, 2)

    @property
    def _count(self) -> int:
        start, limit, step = (self._read_scalar(i) for i in range(3))
        ascending = start <= limit and step > 0
        if not ascending and not (start >= limit and step < 0):
            raise OperatorError(
                f"the step must lead from the start {start} to the limit {limit}, got {step}"
            )
        if start.dtype.kind == "f":
            count = float(np.ceil(np.abs((limit - start) / step)))
        else:
            count = len(range(int(start), int(limit), int(step)))
        check_element_count(count)
        return int(count)

    @property
    def _numbers(self) -> Array:
        start, step = self._read_scalar(0), self._read_scalar(2)
        steps = np.full(self._count, step, start.dtype)
        steps[:1] = start
        return np.add.accumulate(steps, dtype=start.dtype)

    def _read_scalar(self, index: int) -> Array:
        tensor = self.input(index)
        if tensor.data is None:
            raise OperatorError(f"{tensor.name} must be constant")
        return tensor.data.astype(tensor.dtype.numpy).reshape(())

    def infer_outputs(self) -> Sequence[OutputShape]:
        if self.has_data_dependent_shape:
            return [(Unknown(),)]
        numbers = [self.input(i).data.reshape(-1)[0] for i in range(3)]  # type: ignore[union-attr]
        if not all(map(is_known, numbers)):
            start, limit, step = numbers
            if not is_known(step):
                return [(Unknown(),)]
            sign = 1 if step > 0 else -1
            return [(-((start - limit) * sign // (step * sign)),)]
        return [(self._count,)]

    def emit(self, g: Builder, y: View, *bounds: View) -> Value:
        if not self.has_data_dependent_shape:
            return g.constant(self._numbers)
        if y.dtype is not DType.FLOAT32:
            return g.Range(*bounds)
        # Range computes the number of elements in float64 in runtimes, where 0.3 / 0.1 of float32
        # is more than 3.
        start, limit, step = bounds
        steps = g.Ceil(g.Abs(g.Div(g.Sub(limit, start), step)))
        zero, one = (g.scalar(number, DType.FLOAT32) for number in range(2))
        return g.Add(g.Mul(g.Range(zero, steps, one), step), start)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [self._numbers]


class CumSum(AnySizes):
    """CUMSUM: cumulative sums along an axis.

    `exclusive` sums do not include the element at their own index; `reverse` sums begin at the end.
    """

    codes = ("CUMSUM",)
    operands = "T:float32|int32|int64+float64 [...], int32~ [1*] -> T [...]"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis(axes=1)

    @cached_property
    def _axis(self) -> int:
        return axis_of(integer(self, 1), self.input(0).rank)

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self.input(1).is_constant else []

    def check(self) -> None:
        if self.input(1).is_constant:
            _ = self._axis  # the property raises OperatorError

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand or not self.input(1).is_constant else (self._axis,)

    def emit(self, g: Builder, y: View, x: View, computed: View) -> Value:
        axis = x.axis(self._axis) if self.input(1).is_constant else computed.reshape(())
        o = self.options
        return g.CumSum(x, axis, exclusive=int(bool(o.exclusive)), reverse=int(bool(o.reverse)))
