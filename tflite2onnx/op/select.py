"""SELECT and SELECT_V2: elements of one of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder import Builder, Unshaped, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.elementwise import check_count, check_shapes
from tflite2onnx.tensor import Array, DType, Shape


class Select(Operator):
    """x where the condition holds, else y.

    SELECT broadcasts nothing but the condition, and that along the first axis: one truth value
    for each row of x. SELECT_V2 broadcasts all three as numpy does.
    """

    codes = ("SELECT", "SELECT_V2")
    category = Category.TRANSPARENT
    tflite = "... -> ..."
    broadcasts = True
    # The kernel copies bits, whatever they mean.
    moves = True

    def check(self) -> None:
        check_count(self.op, 3)
        condition, x, y = (self.input(i) for i in range(3))
        if condition.dtype is not DType.BOOL or x.dtype is not y.dtype:
            types = ", ".join(t.dtype.label for t in (condition, x, y))
            message = f"it takes a bool and two tensors of one type, not {types}"
            raise OperatorError(message)
        if self._one_element():
            return
        if self.op.code == "SELECT_V2":
            check_shapes(self, condition, x, y)
            return
        rows = [x.shape, (), x.shape[:1]]
        if x.shape != y.shape or x.shape != self.output.shape or condition.shape not in rows:
            shapes = " and ".join(str(list(t.shape)) for t in (condition, x, y))
            message = f"{shapes} do not make {list(self.output.shape)}"
            raise OperatorError(message)

    def _one_element(self) -> bool:
        """Return whether all operands are single elements, of whatever ranks: the kernel's rule."""
        return {t.elements for t in (*self.op.inputs, self.output) if t is not None} == {1}

    def aligned(self) -> Sequence[Shape | None]:
        condition, x = self.input(0), self.input(1)
        if self.op.code == "SELECT" and condition.rank == 1 and x.rank > 1:
            return [condition.shape + (1,) * (x.rank - 1), None, None]
        return super().aligned()

    def emit(
        self, g: Builder, y: View, condition: View, x: View, other: View
    ) -> Value | Unshaped:
        if not x.dtype is other.dtype is y.dtype:
            message = "some of its tensors are quantized and some are not"
            raise OperatorError(message)
        carrier = g.carrier("Where", y.dtype)
        if carrier is y.dtype:
            made = g.Where(condition, x, other)
        else:
            made = g.Where(condition, g.cast(x, carrier), g.cast(other, carrier))
            made = g.cast(made, y.dtype)
        return made if x.rank == y.rank else Unshaped(made)

    def evaluate(self, *inputs: Array) -> list[Array] | None:
        condition, x, other = (
            array if shape is None else array.reshape(shape)
            for array, shape in zip(inputs, self.aligned(), strict=True)
        )
        return [np.where(condition, x, other).reshape(self.output.shape)]
