"""REVERSE_V2, REVERSE_SEQUENCE and Roll: the elements of an axis in another order."""

from collections.abc import Collection, Sequence
from functools import cached_property, reduce
from math import prod

import numpy as np

from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import (
    axis_of,
    check_element_count,
    count_listed_axes,
    expect,
    ints,
)
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import AXIS_END, emit_sizes, take_entries
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import AnySizes, Foldable, Movement
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import require_equal


class Reverse(Movement, Foldable):
    """REVERSE_V2: reverses whole axes."""

    codes = ("REVERSE_V2",)
    facts = (Fact.TAKES,)
    evaluates_dimensions = True
    operands = "T [...], any -> T [...]"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis(axes=1)

    @cached_property
    def _axes(self) -> list[int]:
        rank = self.input(0).rank
        axes = [axis_of(number, rank) for number in ints(self, 1)]
        if len(set(axes)) < len(axes):
            raise OperatorError(f"axes must differ from each other, got {axes}")
        return axes

    def check(self) -> None:
        if self.input(1).is_constant:
            _ = self._axes  # the property raises OperatorError
        else:
            expect(self.input(1), (count_listed_axes(self, 1),), DType.INT32)

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self.input(1).is_constant else []

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand or not self.input(1).is_constant else self._axes

    def emit(self, g: Builder, y: View, x: View, computed: View) -> Value:
        count = self.input(1).elements
        if not count:
            return x.value
        known = self.input(1).is_constant
        axes = g.ints([x.axis(axis) for axis in self._axes]) if known else g.as_int64_list(computed)
        first, last = [-1] * count, [int(np.iinfo(np.int64).min)] * count
        return g.move("Slice", x.dtype, x, first, last, axes, first)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.flip(inputs[0], tuple(self._axes))]


class ReverseSequence(Movement):
    """REVERSE_SEQUENCE: reverses the first elements of an axis, a number of them for each batch."""

    codes = ("REVERSE_SEQUENCE",)
    operands = "T:float32|uint8|int16|int32|int64 [...], index -> T [...]"

    @cached_property
    def _axes(self) -> tuple[int, int]:
        """The time axis and the batch axis."""
        time, batch = int(self.options.seq_dim), int(self.options.batch_dim)
        rank = self.input(0).rank
        if time == batch or not (0 <= time < rank and 0 <= batch < rank):
            axes = f"two different axes from 0 to {rank - 1}, got {time} and {batch}"
            raise OperatorError(f"seq_dim and batch_dim must be {axes}")
        return time, batch

    def infer_outputs(self) -> Sequence[OutputShape]:
        lengths, batch = self.input(1), self.input(0).shape[self._axes[1]]
        message = f"{lengths.name} must have a length for each of {batch} sequences"
        require_equal(batch, prod(lengths.shape), message)
        return super().infer_outputs()

    def check(self) -> None:
        x, lengths, (time, batch) = self.input(0), self.input(1), self._axes
        expect(lengths, (x.shape[batch],), lengths.dtype)
        data = lengths.data
        limit = np.inf if time in x.symbols else x.shape[time]
        if data is not None and ((data < 0) | (data > limit)).any():
            raise OperatorError(f"its lengths must be between 0 and {limit}, got {data.tolist()}")

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        pair = {names[axis] for axis in self._axes}

        def is_legal(label: Axes) -> bool:
            return set(label[:2]) == pair

        first = tuple(names[axis] for axis in self._axes)
        rest = tuple(name for name in names if name not in pair)
        return [Frame({0: names, ~0: names}, first + rest, legal=is_legal)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return () if operand else (self._axes[0],)

    def find_common_axis(self, operand: int, axis: int, other: int) -> int | None:
        batch = self._axes[1]
        axes = {0: batch, 1: 0, ~0: batch}
        return axes[other] if axis == axes[operand] else axis if 1 not in (operand, other) else None

    def emit(self, g: Builder, y: View, x: View, lengths: View) -> Value:
        time, batch = (x.axis(axis) for axis in self._axes)
        wide = g.recast(lengths, lengths.dtype, DType.INT64)
        return g.ReverseSequence(x, wide, time_axis=time, batch_axis=batch)


class Roll(AnySizes, Foldable):
    """Roll: shifts elements along axes cyclically; elements past the end move to the start.

    The shifts may be computed, and the axes may be dynamic.
    """

    codes = ("Roll",)
    operands = "T, any, any -> T"
    keeps_shape = True
    tflite = "... -> ..."
    quantization = Moves()
    add_leading_axis = prepend_axis(axes=2)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else self._entries.keys()

    @cached_property
    def _entries(self) -> dict[int, list[int]]:
        """The entries of the list of shifts for each axis, which may be listed repeatedly."""
        x, count, axes = self.input(0), self.input(1).elements, ints(self, 2)
        if count != len(axes) or 0 in x.shape:
            raise OperatorError(
                f"the input must have elements, and a shift for each axis, got {list(x.shape)}, "
                f"{count} shifts and axes {axes}"
            )
        entries: dict[int, list[int]] = {}
        for entry, number in enumerate(axes):
            entries.setdefault(axis_of(number, x.rank), []).append(entry)
        return entries

    @cached_property
    def _shifts(self) -> dict[int, int]:
        """The shift along each axis: the sum of its entries."""
        shifts = ints(self, 1)
        return {axis: sum(shifts[i] for i in entries) for axis, entries in self._entries.items()}

    def check(self) -> None:
        for axis in self._entries:
            check_element_count(self.input(0).shape[axis])

    def emit(self, g: Builder, y: View, x: View, shifts: View, *_: View) -> Value:
        value = x.value
        for axis, entries in self._entries.items():
            if not self.input(1).is_constant:
                count = self.input(1).elements
                numbers = g.cast(shifts.reshape((count,)), DType.INT64)
                parts = [take_entries(g, numbers, [entry]) for entry in entries]
                value = self._turn(g, x, value, axis, reduce(g.Add, parts))
            elif axis in x.tensor.symbols:
                value = self._turn(g, x, value, axis, g.ints([self._shifts[axis]]))
            elif self._shifts[axis] % x.tensor.shape[axis]:
                order = np.roll(np.arange(x.tensor.shape[axis]), self._shifts[axis])
                value = g.move("Gather", x.dtype, value, order, axis=x.axis(axis))
        return value if value is not x.value else g.Identity(value)

    def _turn(self, g: Builder, x: View, value: Value, axis: int, shift: Value) -> Value:
        """Return the last `shift` elements of an axis, and then the others."""
        size = take_entries(g, emit_sizes(g, x), [axis])
        cut, axes = g.Mod(g.Neg(shift), size), [x.axis(axis)]

        def join(v: Value) -> Value:
            last = g.Slice(v, cut, [AXIS_END], axes)
            return g.Concat(last, g.Slice(v, [0], cut, axes), axis=x.axis(axis))

        return g.with_compute_type("Concat", x.dtype, join, value)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        output = inputs[0]
        for axis, shift in self._shifts.items():
            output = np.roll(output, shift, axis)
        return [output]
