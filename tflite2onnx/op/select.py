"""SELECT and SELECT_V2: elements of one of two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tflite2onnx.builder import Builder, Unshaped, Value, View
from tflite2onnx.errors import FixedSizeError
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.elementwise import check_count, check_shapes
from tflite2onnx.tensor import Array, DType, Shape


class Select(Operator):
    """x where the condition holds, else y.

    SELECT broadcasts nothing but the condition, and that along the first axis: one truth value
    for each row of x. SELECT_V2 broadcasts all three as numpy does.
    """

    codes = ("SELECT", "SELECT_V2")
    any_size = "..."
    category = Category.TRANSPARENT
    tflite = "... -> ..."
    broadcasts = True
    # The kernel copies bits, whatever they mean.
    moves = True

    def check(self) -> None:
        check_count(self.op, 3)
        condition, x, y = (self.input(i) for i in range(3))
        one_type = x.dtype is y.dtype is self.output.dtype
        if condition.dtype is not DType.BOOL or not one_type:
            types = ", ".join(t.dtype.label for t in (condition, x, y, self.output))
            message = f"it takes a bool and two tensors of the output's type, not {types}"
            raise OperatorError(message)
        # Single elements may have any ranks; the output has the one that the file says.
        if {t.elements for t in (condition, x, y, self.output)} != {1}:
            check_shapes(self, self.aligned())

    def aligned(self) -> Sequence[Shape]:
        shapes = [() if shape is None else shape for shape in super().aligned()]
        condition, x = self.input(0), self.input(1)
        if self.op.code == "SELECT" and condition.rank == 1:
            if condition.symbols:
                message = "a condition for each row is given axes, and the rows stay open"
                raise FixedSizeError(message)
            shapes[0] = (condition.shape + (1,) * x.rank)[: max(x.rank, 1)]
        return shapes

    def emit(
        self, g: Builder, y: View, condition: View, x: View, other: View
    ) -> Value | Unshaped:
        if not x.dtype is other.dtype is y.dtype:
            message = "some of its tensors are quantized and some are not"
            raise OperatorError(message)
        made = g.within("Where", y.dtype, partial(g.Where, condition), x, other)
        return made if x.rank == y.rank else Unshaped(made)

    def evaluate(self, *inputs: Array) -> list[Array]:
        condition, x, other = (
            array.reshape(shape) for array, shape in zip(inputs, self.aligned(), strict=True)
        )
        return [np.where(condition, x, other).reshape(self.output.shape)]
