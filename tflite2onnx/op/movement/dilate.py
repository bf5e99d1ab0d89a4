"""DILATE and STABLEHLO_PAD: padding values between the elements, and around them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import MOST_COMPUTED, ints
from tflite2onnx.op.common.runtime_shapes import AXIS_END, reshape_to
from tflite2onnx.op.movement.pad import pad_axes
from tflite2onnx.op.traits import Movement
from tflite2onnx.utils.dimension import Dim


class Dilate(Movement):
    """DILATE: along each axis, (dilation - 1) padding values between neighbouring elements."""

    codes = ("DILATE",)
    operands = "T, int32, T [1*] -> T"
    tflite = "... -> ..."

    @cached_property
    def _steps(self) -> list[int]:
        """The distance of neighbouring elements along each axis."""
        x, steps = self.input(0), ints(self, 1)
        if len(steps) != x.rank or min(steps, default=1) < 1:
            raise OperatorError(f"dilations must be {x.rank} positive integers, got {steps}")
        return steps

    @cached_property
    def _sizes(self) -> list[Dim]:
        pairs = zip(self.input(0).shape, self._steps, strict=True)
        return [(size - 1) * step + 1 if size else 0 for size, step in pairs]

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [self._sizes]

    def emit(self, g: Builder, y: View, x: View, _: View, value: View) -> Value:
        return dilate_axes(g, x, x.reorder(self._steps), value)


def dilate_axes(g: Builder, x: View, steps: Sequence[int], fill: View) -> Value:
    """Return x with step - 1 elements `fill` between two elements along each stored axis."""
    sizes = x.tensor.layout_shape
    if all(step == 1 or sizes[axis] < 2 for step, axis in zip(steps, x.order, strict=True)):
        return x.value
    if x.tensor.symbols:
        return _dilate_dynamic_axes(g, x, steps, fill)
    # An axis of size 1 is inserted after each axis, padded to the distance, and merged.
    split = x.reshape([size for old in x.shape for size in (old, 1)])
    grow = [size for step in steps for size in (0, step - 1)]
    whole = [size * step for size, step in zip(x.shape, steps, strict=True)]
    if prod(whole) > MOST_COMPUTED:
        raise OperatorError(
            f"its output must have at most {MOST_COMPUTED:,} elements, got {prod(whole):,}"
        )
    padded = pad_axes(g, split, x.dtype, [0] * len(grow), grow, fill.reshape(()))
    merged = g.reshape(padded, whole)
    pairs = zip(x.shape, steps, strict=True)
    last = g.ints([(size - 1) * step + 1 if size else 0 for size, step in pairs])
    first, axes = g.ints([0] * x.rank), g.ints(range(x.rank))
    return g.with_compute_type("Slice", x.dtype, lambda v: g.Slice(v, first, last, axes), merged)


def _dilate_dynamic_axes(g: Builder, x: View, steps: Sequence[int], fill: View) -> Value:
    inner = g.ints(range(1, 2 * x.rank, 2))
    grow = [size for step in steps for size in (0, step - 1)]
    pads = g.ints([0] * len(grow) + grow)
    padded = g.with_compute_type(
        "Pad",
        x.dtype,
        lambda v, fill: g.Pad(g.Unsqueeze(v, inner), pads, fill),
        x,
        fill.reshape(()),
    )
    merged = reshape_to(g, padded, g.Mul(g.Shape(x), g.ints(steps)))
    last = g.ints([1 - step if step > 1 else AXIS_END for step in steps])
    first, axes = g.ints([0] * x.rank), g.ints(range(x.rank))
    return g.with_compute_type("Slice", x.dtype, lambda v: g.Slice(v, first, last, axes), merged)


class StablehloPad(Movement):
    """STABLEHLO_PAD: pads with a value before, between and after the elements.

    Negative edge padding removes elements, including interior padding.
    """

    codes = ("STABLEHLO_PAD",)
    operands = "T, T [1*] -> T"
    tflite = "... -> ..."

    @cached_property
    def _pads(self) -> list[tuple[int, int, int]]:
        """The padding before, after and between the elements of each axis."""
        o, rank = self.options, self.input(0).rank
        columns = o.edge_padding_low, o.edge_padding_high, o.interior_padding
        if any(len(column or ()) != rank for column in columns) or min(columns[2], default=0) < 0:
            raise OperatorError(
                f"low, high and interior padding must each be {rank} integers, "
                f"with no negative interior padding, got {columns}"
            )
        return list(zip(*columns, strict=True))

    def infer_outputs(self) -> Sequence[OutputShape]:
        sizes = zip(self.input(0).shape, self._pads, strict=True)
        return [
            [
                size + (max(size - 1, 0) * between if between else 0) + low + high
                for size, (low, high, between) in sizes
            ]
        ]

    def check(self) -> None:
        (sizes,) = self.infer_outputs()
        if not sizes or min(sizes) < 1:
            # The kernel sets all sizes to 0 if one of them is.
            raise OperatorError(f"all sizes of the padded shape must be positive, got {sizes}")

    def emit(self, g: Builder, y: View, x: View, value: View) -> Value:
        low, high, between = zip(*x.reorder(self._pads), strict=True)
        dilated = dilate_axes(g, x, [number + 1 for number in between], value)
        return pad_axes(g, dilated, x.dtype, low, high, value.reshape(()))
