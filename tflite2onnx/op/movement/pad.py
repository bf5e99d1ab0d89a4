"""PAD, PADV2, MIRROR_PAD, DILATE and STABLEHLO_PAD: elements around and between elements."""

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    MOST_COMPUTED,
    check_element_count,
    expect_rows,
    expect_type,
    ints,
    read_pairs,
)
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import AXIS_END, emit_sizes, reshape_to
from tflite2onnx.op.traits import Foldable, Movement
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import is_known

_TYPES = tuple(dtype for dtype in DType if dtype.numpy is not None)


def pad_axes(
    g: Builder,
    x: View | Value,
    dtype: DType,
    low: Sequence[int],
    high: Sequence[int],
    fill: View | Value,
) -> Value:
    """Return x with `low` elements before and `high` elements after each stored axis.

    Negative numbers remove elements.
    """
    if not any((*low, *high)):
        return x if isinstance(x, Value) else x.value
    return g.pad(dtype, x, [*low, *high], fill)


class _Padding(Movement):
    """Base of the operators: the second input, [rank, 2], is the number of elements to add."""

    shape_inputs = (1,)
    tflite = "... -> ..."
    add_leading_axis = prepend_axis({1: (0, 0)})

    @cached_property
    def _pads(self) -> list[tuple[int, int]]:
        """The number of elements to add before and after each axis."""
        return read_pairs(self, 1, self.input(0).rank)

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        if self.has_data_dependent_shape:
            expect_rows(self, 1, (len(shape), 2))
            return [[Unknown(size if is_known(size) else 0) for size in shape]]
        return [[size + sum(pads) for size, pads in zip(shape, self._pads, strict=True)]]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand or self.has_data_dependent_shape:
            return None
        return [axis for axis, pads in enumerate(self._pads) if any(pads)]

    def check(self) -> None:
        expect_type(self.input(0), _TYPES)

    def _order_pads(self, g: Builder, x: View, table: View) -> Value:
        """Return the padding before each stored axis, then the padding after each, int64."""
        if self.has_data_dependent_shape:
            return g.reshape(
                g.Transpose(g.as_int64_rows(table, x.order), perm=[1, 0]), [2 * x.rank]
            )
        begins, ends = zip(*x.reorder(self._pads), strict=True)
        return g.ints([*begins, *ends])

    def _emit_pad(
        self, g: Builder, x: View, table: View, *fill: Value, mode: str | None = None
    ) -> Value:
        return g.pad(x.dtype, x, self._order_pads(g, x, table), *fill, mode=mode)


class Pad(_Padding, Foldable):
    """Pads with zeros (PAD), or with a value that is an input (PADV2)."""

    codes = ("PAD", "PADV2")
    operands = "T, any, T? [1*], ... -> T"

    def emit(
        self, g: Builder, y: View, x: View, pads: View, value: View | None = None, *_: View
    ) -> Value:
        if not self.has_data_dependent_shape and not np.any(self._pads):
            return x.value
        # The zero point is the stored integer of 0.
        fill = g.scalar(y.storage.zero_point, y.dtype) if value is None else value.reshape(())
        return self._emit_pad(g, x, pads, fill)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        value = inputs[2].reshape(()) if len(inputs) > 2 else 0
        return [np.pad(inputs[0], self._pads, constant_values=value)]


class MirrorPad(_Padding, Foldable):
    """MIRROR_PAD: mirrored elements; REFLECT leaves out the edge element, SYMMETRIC repeats it."""

    codes = ("MIRROR_PAD",)
    operands = "T, any -> T"
    quantization = Moves(rescales=QUANTIZED)

    @property
    def _reflects(self) -> bool:
        if self.options.mode not in ("REFLECT", "SYMMETRIC"):
            raise OperatorError(f"mode must be REFLECT or SYMMETRIC, got {self.options.mode}")
        return bool(self.options.mode == "REFLECT")

    def check(self) -> None:
        super().check()
        self._reflects  # noqa: B018 - checks the mode
        if self.has_data_dependent_shape:
            return
        for size, pads in zip(self.input(0).shape, self._pads, strict=True):
            if (largest := max(pads)) > (limit := max(size - self._reflects, 0)):
                axis = f"an axis of {size} elements"
                raise OperatorError(f"padding must be at most {limit} along {axis}, got {largest}")

    def emit(self, g: Builder, y: View, x: View, table: View) -> Value:
        if not self.has_data_dependent_shape and not np.any(self._pads):
            return x.value
        if self._reflects:
            return self._emit_pad(g, x, table, mode="reflect")
        if not self.has_data_dependent_shape and np.max(self._pads) == 1:
            # The mirror of one element is the element.
            return self._emit_pad(g, x, table, mode="edge")
        # Pad has no symmetric mode. A Gather for each axis copies fewer elements than slices and a
        # Concat.
        mirror = partial(self._mirror_axes, g, x, table)
        return g.with_compute_type("Gather", x.dtype, mirror, x.value)

    def _mirror_axes(self, g: Builder, x: View, table: View, value: Value) -> Value:
        for axis in range(x.rank):
            if self.has_data_dependent_shape or any(self._pads[axis]):
                value = g.Gather(value, self._compute_sources(g, x, table, axis), axis=x.axis(axis))
        return value

    def _compute_sources(self, g: Builder, x: View, table: View, axis: int) -> Value:
        """Return the index in x of each element along an axis of the output."""
        size = x.tensor.shape[axis]
        if not self.has_data_dependent_shape and axis not in x.tensor.symbols:
            check_element_count(size + sum(self._pads[axis]))
            return g.constant(np.pad(np.arange(size), self._pads[axis], mode="symmetric"))
        count = g.reshape(g.Gather(emit_sizes(g, x), [axis], axis=0), [])
        pads = g.Gather(g.as_int64_rows(table), [axis], axis=0)
        before, after = (g.Gather(pads, end, axis=1) for end in (0, 1))
        first, last = g.Neg(g.reshape(before, [])), g.Add(count, g.reshape(after, []))
        # Reflection at the left edge maps -1 to 0, then reflection at the right edge maps size to
        # size - 1.
        index = g.Range(first, last, 1)
        index = g.max_int64(index, g.Sub(g.Neg(index), 1))
        reflected = g.Sub(g.Sub(g.Add(count, count), 1), index)
        return g.min_int64(index, reflected)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.pad(inputs[0], self._pads, "reflect" if self._reflects else "symmetric")]


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
    if count > MOST_COMPUTED:
        raise OperatorError(
            f"its output must have at most {MOST_COMPUTED:,} elements, got {count:,}"
        )
    grown = g.with_compute_type(
        "Pad", x.dtype, lambda v, c: g.Pad(g.Unsqueeze(v, inner), pads, c), x, fill.reshape(())
    )
    merged = reshape_to(g, grown, g.Mul(g.Shape(x), g.ints(steps)))
    last = g.ints([1 - step if step > 1 else AXIS_END for step in steps])
    return g.move("Slice", x.dtype, merged, [0] * x.rank, last, g.ints(range(x.rank)))


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
        return pad_axes(g, dilated, x.dtype, low, high, value.reshape(()))
