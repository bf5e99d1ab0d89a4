"""Shapes that are computed at run time: sizes of dynamic axes, and data-dependent axes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import make_identity
from tflite2onnx.op.base import Operator
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type
from tflite2onnx.tensor import DType

AXIS_END = np.iinfo(np.int64).max  # the end of an axis, for Slice


class SplitShape(NamedTuple):
    """The sizes of a tensor before an axis, of the axis, and after it; lists of int64."""

    before: Value
    size: Value
    after: Value

    def merge_sides(self, g: Builder) -> Value:
        """Return three sizes: of all axes before the axis, of the axis, and of all axes after."""
        before, after = (multiply_sizes(g, sizes) for sizes in (self.before, self.after))
        return g.Concat(before, self.size, after, axis=0)


def emit_sizes(g: Builder, x: View) -> Value:
    """Return the sizes of the TFLite axes as a list of int64, a constant if they are known."""
    sizes = g.Shape(x)
    if x.order == make_identity(x.rank):
        return sizes
    return g.Gather(sizes, [x.axis(axis) for axis in range(x.rank)], axis=0)


def emit_size(g: Builder, x: View, axis: int) -> Value:
    """Return the size of a TFLite axis, int64 without axes; a constant if it is known."""
    return g.reshape(g.runtime_shape([x.tensor.sizes[axis]], x), [])


def count_up(g: Builder, count: Value) -> Value:
    """Return the int64 numbers from 0 to a count, which has one element and at most one axis."""
    if count.data is not None:
        check_element_count(count.data.item())
        return g.constant(np.arange(count.data.item()))
    return g.Range(0, g.reshape(count, []), 1)


def multiply_sizes(g: Builder, sizes: Value) -> Value:
    """Return the product of a list of sizes, which may be empty, as a list of one number."""
    return g.reduce("ReduceProd", sizes, [0], keepdims=True)


def take_entries(g: Builder, numbers: Value, entries: Sequence[int]) -> Value:
    """Return some entries of a list of int64, in an order."""
    return g.Gather(numbers, g.ints(entries), axis=0)


def resolve_axis(g: Builder, number: View, count: int) -> Value:
    """Return an axis as a list of one number, 0 ... count - 1; `number` may be negative."""
    index = g.cast(number.reshape((1,)), DType.INT64)
    return g.Mod(index, [count])


def split_shape(g: Builder, sizes: Value, axis: Value, length: int = 1) -> SplitShape:
    """Return a list of sizes split at an axis, or at `length` axes that begin with it."""
    after = g.Add(axis, [length])
    bounds = ([0], axis), (axis, after), (after, [AXIS_END])
    return SplitShape(*(g.Slice(sizes, first, last, [0]) for first, last in bounds))


def reshape_to(g: Builder, value: Value, *sizes: Value) -> Value:
    """Return a value reshaped to the concatenated lists of sizes; sizes may be 0."""
    return g.reshape_to_sizes(value, g.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0])


def expect_axis(operator: Operator, index: int) -> None:
    """Raise OperatorError unless an input is one integer, which need not be constant."""
    number = operator.input(index)
    expect_type(number, (DType.INT32, DType.INT64))
    expect(number, (1,) * number.rank, number.dtype)
