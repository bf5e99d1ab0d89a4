"""Roll: elements are shifted along axes, cyclically."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import axis_of, check_element_count, expect_type, ints
from tflite2onnx.op.traits import Foldable
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import Array


class Roll(Foldable):
    """Roll: shifts elements along axes cyclically; elements past the end move to the start."""

    codes = ("Roll",)
    keeps_shape = True
    tflite = "... -> ..."
    quantization = Moves()

    @cached_property
    def _shifts(self) -> dict[int, int]:
        """The shift along each axis; the shifts of an axis that is listed repeatedly are added."""
        x, shifts, axes = self.input(0), ints(self, 1), ints(self, 2)
        if len(shifts) != len(axes) or 0 in x.shape:
            raise OperatorError(
                f"there must be a shift for each axis, and elements along all of {list(x.shape)}, "
                f"got shifts {shifts} along axes {axes}"
            )
        totals: dict[int, int] = {}
        for shift, number in zip(shifts, axes, strict=True):
            axis = axis_of(number, x.rank)
            totals[axis] = totals.get(axis, 0) + shift
        return {axis: shift % x.shape[axis] for axis, shift in totals.items()}

    def check(self) -> None:
        x = self.input(0)
        expect_type(self.output, (x.dtype,))
        for axis in self._shifts:
            check_element_count(x.shape[axis])

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        value = x.value
        for axis, shift in self._shifts.items():
            if shift:
                order = np.roll(np.arange(x.tensor.shape[axis]), shift)
                value = self._gather_axis(g, x, value, order, axis)
        return value if value is not x.value else g.Identity(value)

    @staticmethod
    def _gather_axis(g: Builder, x: View, value: Value, order: Array, axis: int) -> Value:
        place = x.axis(axis)
        return g.with_compute_type(
            "Gather", x.dtype, lambda v: g.Gather(v, order, axis=place), value
        )

    def evaluate(self, *inputs: Array) -> Sequence[Array]:
        output = inputs[0]
        for axis, shift in self._shifts.items():
            output = np.roll(output, shift, axis)
        return [output]
