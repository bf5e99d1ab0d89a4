"""What is asked of shapes when the model runs: sizes, and an axis that is computed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import identity
from tflite2onnx.op.base import Operator
from tflite2onnx.op.common.checks import expect, expect_type
from tflite2onnx.tensor import DType

BEHIND = np.iinfo(np.int64).max


class SplitShape(NamedTuple):
    """The sizes of a tensor: those before an axis, its own, and those behind; lists of int64."""

    before: Value
    size: Value
    behind: Value

    def merge_sides(self, g: Builder) -> Value:
        """Return three sizes, in which the axis is the one in the middle."""
        before, behind = (multiply_sizes(g, sizes) for sizes in (self.before, self.behind))
        return g.Concat(before, self.size, behind, axis=0)


def sizes_of(g: Builder, x: View) -> Value:
    """Return the sizes of the TFLite axes as a list of int64."""
    if not x.tensor.symbols:
        return g.ints(x.tensor.shape)
    sizes = g.Shape(x)
    if x.order == identity(x.rank):
        return sizes
    return g.Gather(sizes, g.ints([x.axis(axis) for axis in range(x.rank)]), axis=0)


def multiply_sizes(g: Builder, sizes: Value) -> Value:
    """Return the product of a list, which may be empty, as a list."""
    return g.reduce("ReduceProd", sizes, [0], keepdims=True)


def resolve_axis(g: Builder, number: View, count: int) -> Value:
    """Return which one of so many axes a number means, as a list: it may count from the end."""
    wide = g.cast(number.reshape((1,)), DType.INT64)
    return g.Mod(wide, g.ints([count]))


def split_shape(g: Builder, sizes: Value, place: Value, length: int = 1) -> SplitShape:
    """Return sizes that are cut before a place, and so many behind it."""
    after, axes = g.Add(place, g.ints([length])), g.ints([0])
    return SplitShape(
        g.Slice(sizes, g.ints([0]), place, axes),
        g.Slice(sizes, place, after, axes),
        g.Slice(sizes, after, g.ints([BEHIND]), axes),
    )


def reshape_to(g: Builder, value: Value, *sizes: Value) -> Value:
    """Return a value in the shape of lists of sizes, any of which may be 0."""
    return g.reshape_to_sizes(value, g.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0])


def expect_axis(operator: Operator, index: int) -> None:
    """Raise OperatorError unless an input is one number, which may be computed."""
    number = operator.input(index)
    expect_type(number, (DType.INT32, DType.INT64))
    expect(number, (1,) * number.rank, number.dtype)
