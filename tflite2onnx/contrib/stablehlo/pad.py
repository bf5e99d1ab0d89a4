"""DILATE and STABLEHLO_PAD: elements between and around elements."""

from collections.abc import Sequence
from functools import cached_property
from math import prod

from tflite2onnx.operators import (
    Builder,
    DType,
    Movement,
    OperatorError,
    OutputShape,
    Value,
    View,
    ints,
)
from tflite2onnx.sizes import AXIS_END

# The most elements of a computed tensor: the number of bytes of more does not fit into 64 bits.
_MOST = 1 << 62


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

    def infer_outputs(self) -> Sequence[OutputShape]:
        pairs = zip(self.input(0).shape, self._steps, strict=True)
        return [[(size - 1) * step + 1 if size else 0 for size, step in pairs]]

    def emit(self, g: Builder, y: View, x: View, _: View, value: View) -> Value:
        return dilate_axes(g, x, x.reorder(self._steps), value)


def dilate_axes(g: Builder, x: View, steps: Sequence[int], fill: View) -> Value:
    """Return x with step - 1 elements `fill` between two elements along each stored axis."""
    sizes = x.tensor.layout_shape
    if all(step == 1 or sizes[axis] < 2 for step, axis in zip(steps, x.order, strict=True)):
        return x.value
    # An axis of size 1 is inserted after each axis and padded to the distance. Then the two axes
    # are merged.
    grow = [size for step in steps for size in (0, step - 1)]
    inner, pads = g.ints(range(1, 2 * x.rank, 2)), g.ints([0] * len(grow) + grow)
    count = prod(size * step for size, step in zip(x.shape, steps, strict=True))
    if count > _MOST:
        raise OperatorError(f"its output must have at most {_MOST:,} elements, got {count:,}")
    grown = g.with_compute_type(
        "Pad", x.dtype, lambda v, c: g.Pad(g.Unsqueeze(v, inner), pads, c), x, fill.reshape(())
    )
    merged = g.reshape_to_sizes(grown, g.Mul(g.Shape(x), g.ints(steps)))
    last = g.ints([1 - step if step > 1 else AXIS_END for step in steps])
    return g.move("Slice", x.dtype, merged, [0] * x.rank, last, g.ints(range(x.rank)))


def pad_axes(
    g: Builder, x: Value, dtype: DType, low: Sequence[int], high: Sequence[int], fill: View
) -> Value:
    """Return x with `low` elements before and `high` elements after each stored axis.

    Negative numbers remove elements.
    """
    return g.pad(dtype, x, [*low, *high], fill.reshape(())) if any((*low, *high)) else x


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
        pairs = zip(self.input(0).shape, self._pads, strict=True)
        return [
            [
                n + (max(n - 1, 0) * between if between else 0) + low + high
                for n, (low, high, between) in pairs
            ]
        ]

    def check(self) -> None:
        (sizes,) = self.infer_outputs()
        if not sizes or min(sizes) < 1:
            # If one size is 0, the kernel sets all sizes to 0.
            raise OperatorError(f"all sizes of the padded shape must be positive, got {sizes}")

    def emit(self, g: Builder, y: View, x: View, value: View) -> Value:
        low, high, between = zip(*x.reorder(self._pads), strict=True)
        dilated = dilate_axes(g, x, [number + 1 for number in between], value)
        return pad_axes(g, dilated, x.dtype, low, high, value)
