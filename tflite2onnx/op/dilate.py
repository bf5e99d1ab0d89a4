"""DILATE: elements apart from each other."""

from __future__ import annotations

from functools import cached_property

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import expect, expect_type, ints
from tflite2onnx.tensor import DType


class Dilate(Operator):
    """DILATE: each axis with a value between its elements, as often as its dilation less one."""

    codes = ("DILATE",)
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    moves = True

    @cached_property
    def _steps(self) -> list[int]:
        """How far neighbours are from each other along each axis."""
        x, steps = self.input(0), ints(self, 1)
        if len(steps) != x.rank or min(steps, default=1) < 1:
            message = f"dilations {steps} of {x.rank} axes"
            raise OperatorError(message)
        return steps

    @cached_property
    def _sizes(self) -> list[int]:
        pairs = zip(self.input(0).shape, self._steps, strict=True)
        return [(size - 1) * step + 1 if size else 0 for size, step in pairs]

    def check(self) -> None:
        x, value = self.input(0), self.input(2)
        expect_type(self.input(1), (DType.INT32,))
        expect(value, (1,) * value.rank, x.dtype)
        expect(self.output, self._sizes, x.dtype)

    def emit(self, g: Builder, y: View, x: View, _: View, value: View) -> Value:
        if x.shape == y.shape:
            return x.value
        # Each element gets an axis of its own, which grows from 1 to the distance.
        steps = x.reorder(self._steps)
        split = [size for old in x.shape for size in (old, 1)]
        grow = [size for step in steps for size in (0, step - 1)]
        whole = [size * step for size, step in zip(x.shape, steps, strict=True)]
        pads = g.ints([0] * len(grow) + grow)
        padded = g.within(
            "Pad", x.dtype, lambda v, fill: g.Pad(g.reshape(v, split), pads, fill),
            x, value.reshaped(()),
        )  # fmt: skip
        merged = g.reshape(padded, whole)
        last = g.ints(y.shape)
        first, axes = g.ints([0] * y.rank), g.ints(range(y.rank))
        return g.within("Slice", x.dtype, lambda v: g.Slice(v, first, last, axes), merged)
