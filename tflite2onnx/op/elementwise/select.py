"""SELECT and SELECT_V2: each element is from one of two tensors."""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.op.base import Category, OutputShape
from tflite2onnx.op.traits import Broadcasts, Foldable, Movement
from tflite2onnx.tensor import Array, Shape
from tflite2onnx.utils.dimension import broadcast_dims


class Select(Broadcasts, Movement, Foldable):
    """x where the condition is true, else y.

    SELECT broadcasts the condition only, along the first axis: a condition for each row of x.
    SELECT_V2 broadcasts all three inputs as NumPy does.
    """

    codes = ("SELECT", "SELECT_V2")
    evaluates_dimensions = True
    category = Category.TRANSPARENT
    operands = "bool, T, T -> T"
    tflite = "... -> ..."
    # The kernel copies stored elements, whatever their scales are.

    def infer_outputs(self) -> Sequence[OutputShape]:
        # The kernels copy a single element to an output of the declared rank.
        if all(t and t.elements == 1 for t in (*self.op.inputs, self.output)):
            return [self.output.shape]
        condition, x, y = (self.input(i).shape for i in range(3))
        return [broadcast_dims(condition + (1,) * (len(x) - 1) * self._by_rows, x, y)]

    @property
    def _by_rows(self) -> bool:
        return self.op.code == "SELECT" and self.input(0).rank == 1 and self.input(1).rank > 1

    @property
    def _operand_shapes(self) -> Sequence[Shape]:
        """The shapes of the inputs as they are broadcast."""
        shapes = [() if shape is None else shape for shape in super().broadcast_shapes()]
        if self._by_rows:
            shapes[0] = self.input(0).shape + (1,) * (self.input(1).rank - 1)
        return shapes

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        condition, *others = self._operand_shapes
        return [None if self._by_rows else condition, *others]

    def emit(
        self, g: Builder, y: View, condition: View, x: View, other: View
    ) -> Value | NeedsReshape:
        where = condition.value
        if self._by_rows:
            where = condition.reshape(y.reorder([*condition.sizes, *[1] * (y.rank - 1)]))
        output = g.where(where, x, other, y.dtype)
        return output if x.rank == y.rank else NeedsReshape(output)

    def evaluate(self, *inputs: Array) -> list[Array]:
        condition, x, other = (
            array.reshape(shape) for array, shape in zip(inputs, self._operand_shapes, strict=True)
        )
        return [np.where(condition, x, other).reshape(self.output.shape)]
