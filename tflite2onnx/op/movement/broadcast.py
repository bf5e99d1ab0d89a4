"""BROADCAST_TO, BROADCAST_ARGS and FILL: elements repeated to fill a shape."""

from collections.abc import Collection, Sequence

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import count_listed_axes, ints, read_shape
from tflite2onnx.op.common.leading_axis import Wider, prepend_entries
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, Movement, ReshapesInputs
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import Array, Shape
from tflite2onnx.utils.dimension import broadcast_dims, has_dimensions


class BroadcastTo(Movement, Foldable, ReshapesInputs):
    """BROADCAST_TO: repeats axes of size 1 to fill a shape, as in NumPy."""

    codes = ("BROADCAST_TO",)
    operands = "T, index [sizes] -> T"
    facts = (Fact.REPEATS,)
    sizes_input = 1
    evaluates_dimensions = True
    shape_inputs = (1,)
    tflite = "... -> ..."

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [read_shape(self, 1)]

    def check(self) -> None:
        x, sizes = self.input(0), self.input(1)
        if self.has_data_dependent_shape:
            if (size := self.output.rank) < x.rank:
                raise OperatorError(f"{sizes.name} must have {x.rank} elements or more, got {size}")
            return
        shape = ints(self, 1)
        count = len(shape) - x.rank
        fitting = zip(x.shape, shape[max(count, 0) :], strict=False)
        if count < 0 or not all(old in (1, new) for old, new in fitting):
            raise OperatorError(f"{x.name} must broadcast to {shape}, got {list(x.shape)}")

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        x, count = self.input(0), self.output.rank - self.input(0).rank
        pairs = enumerate(zip(x.shape, self.output.shape[count:], strict=True))
        return None if operand else [axis for axis, (old, new) in pairs if old != new]

    def add_leading_axis(self) -> Wider | None:
        # The input may have fewer axes than the output.
        if self.input(0).rank != self.output.rank:
            return None
        op = prepend_entries(self.op, {1: 1})
        return None if op is None else (op, (0,))

    def broadcast_shapes(self) -> Sequence[Shape | None]:
        x = self.input(0)
        return [(1,) * (self.output.rank - x.rank) + x.shape, None]

    def emit(self, g: Builder, y: View, x: View, shape: View) -> Value:
        return x.value if x.sizes == y.sizes else _expand_to_shape(g, x, y, shape)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.broadcast_to(inputs[0], self.output.shape)]


def _expand_to_shape(g: Builder, x: View, y: View, shape: View) -> Value:
    # Expand of runtimes returns another shape if a size is 0.
    if shape.tensor.is_constant and 0 in y.shape:
        return g.constant(np.empty(y.shape, y.dtype.numpy), y.dtype)
    return g.move("Expand", x.dtype, x, g.as_int64_list(shape, y.order))


class BroadcastArgs(Foldable):
    """BROADCAST_ARGS: the shape that two shapes broadcast to."""

    codes = ("BROADCAST_ARGS",)
    evaluates_dimensions = True
    operands = "T:index [sizes], T [others] -> T"
    quantization = Moves()

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(max(count_listed_axes(self, i) for i in (0, 1)),)]

    def emit(self, g: Builder, y: View, a: View, b: View) -> Value:
        (count,) = y.shape
        a_sizes, b_sizes = (_pad_leading_ones(g, x, count) for x in (a, b))
        # The broadcast size of 0 and 1 is 0, so Max would be wrong.
        return g.Where(g.Equal(a_sizes, g.scalar(1, y.dtype)), b_sizes, a_sizes)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        sizes = broadcast_dims(*(array.tolist() for array in inputs))
        return [np.array(sizes, object if has_dimensions(sizes) else self.output.dtype.numpy)]


def _pad_leading_ones(g: Builder, x: View, count: int) -> Value:
    length = count - x.shape[0]
    return g.Concat(np.ones(length, x.dtype.numpy), x, axis=0) if length else x.value


class Fill(Movement, Foldable):
    """FILL: one element, repeated to fill a shape."""

    codes = ("FILL",)
    facts = (Fact.REPEATS,)
    sizes_input = 0
    evaluates_dimensions = True
    shape_inputs = (0,)
    operands = "index [sizes], T [] -> T"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [read_shape(self, 0)]

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        return [Frame({~0: names}, names)]

    def emit(self, g: Builder, y: View, dims: View, value: View) -> Value:
        return _expand_to_shape(g, value, y, dims)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.full(self.output.shape, inputs[1])]
