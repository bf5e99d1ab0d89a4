"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW: each window is reduced to one element."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.contrib.stablehlo.pad import dilate_axes, pad_axes
from tflite2onnx.contrib.stablehlo.resolve_computations import OF_BOOLS, ComputationOptions
from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DType,
    OperatorError,
    OutputShape,
    Value,
    View,
    ints,
)
from tflite2onnx.sizes import AXIS_END, Dim, is_known

_MOST_AXES = 6
_TYPES = "bool|uint8|int8|int16|int32|int64|float32|float64"


class WindowAxis(NamedTuple):
    """The window along one axis; sizes are in elements after base dilation."""

    size: int
    stride: int
    dilation: int
    base: int = 1
    low: int = 0
    high: int = 0

    @property
    def extent(self) -> int:
        """The size of a window after dilation."""
        return (self.size - 1) * self.dilation + 1

    def count_windows(self, size: Dim) -> Dim:
        dilated = 0 if size == 0 else (size - 1) * self.base + 1
        count = (dilated + self.low + self.high - self.extent) // self.stride + 1
        return max(count, 0) if is_known(count) else count


class _Windows(AnySizes):
    """Base of both operators. All functions are associative, so one axis is reduced after another.

    Two adjacent windows are combined to a window of twice the size, so the number of nodes is
    logarithmic in the size.
    """

    tflite = "... -> ..."

    @cached_property
    def _axes(self) -> list[WindowAxis]:
        raise NotImplementedError

    @property
    def _function(self) -> str:
        """One of add, mul, max, min, and, or; "" for other functions."""
        raise NotImplementedError

    @property
    def _node(self) -> str:
        if not self._function:
            named = self.op.read_made(ComputationOptions).computation or "none"
            raise OperatorError(f"its function must be one of {', '.join(OF_BOOLS)}, got {named}")
        return self._function.title()

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        return [[axis.count_windows(size) for axis, size in zip(self._axes, shape, strict=True)]]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand:
            return None
        return [i for i, axis in enumerate(self._axes) if axis != WindowAxis(1, 1, 1)]

    def check(self) -> None:
        x, (sizes,) = self.input(0), self.infer_outputs()
        _ = self._node  # the property raises OperatorError
        for tensor in (x, self.input(1), self.output):
            if tensor.quantization is not None:
                raise OperatorError(f"{tensor.name} must not be quantized")
        if not 0 < x.rank <= _MOST_AXES or 0 in x.shape or 0 in sizes:
            raise OperatorError(
                f"{x.name} must have 1 to {_MOST_AXES} axes, all with elements and at least one "
                f"window, got the shape {list(x.shape)} and {sizes} windows"
            )

    def emit(self, g: Builder, y: View, x: View, first: View, *_: View) -> Value:
        axes = x.reorder(self._axes)
        dilated = dilate_axes(g, x, [axis.base for axis in axes], first)
        low, high = ([getattr(axis, side) for axis in axes] for side in ("low", "high"))
        image = pad_axes(g, dilated, x.dtype, low, high, first)
        node, dtype = self._choose_node_and_type(x.dtype)
        value = g.recast(image, x.dtype, dtype)
        for index, axis in enumerate(axes):
            value = _reduce_axis(g, value, node, axis, index, dtype)
        if not self._is_neutral(first, node):
            start = g.recast(first.reshape(()), x.dtype, dtype)
            value = g.add_with_casts(node, dtype, start, value)
        return g.recast(value, dtype, x.dtype)

    def _choose_node_and_type(self, dtype: DType) -> tuple[str, DType]:
        """Return the node, and a type in which its results wrap around to the same numbers."""
        node = self._node
        if node in ("And", "Or"):
            return node, DType.BOOL
        if dtype is DType.BOOL:
            return OF_BOOLS[self._function].title(), dtype
        narrow = dtype in (DType.INT8, DType.UINT8, DType.INT16)
        return node, DType.INT32 if narrow else dtype

    def _is_neutral(self, first: View, node: str) -> bool:
        if first.tensor.data is None:
            return False
        number = first.constant.reshape(-1)[0]
        if node in ("Add", "Or"):
            return bool(number == 0)
        if node in ("Mul", "And"):
            return bool(number == 1 if node == "Mul" else number)
        if number.dtype.kind == "f":
            return bool(number == (np.inf if node == "Min" else -np.inf))
        limits = np.iinfo(number.dtype)
        return bool(number == (limits.max if node == "Min" else limits.min))


def _reduce_axis(
    g: Builder, x: Value, node: str, axis: WindowAxis, index: int, dtype: DType
) -> Value:
    """Reduce windows along the axis of this index, whose size may be dynamic."""

    def slice_part(value: Value, start: int, cut: int, step: int = 1) -> Value:
        bounds = (g.ints([number]) for number in (start, -cut if cut else AXIS_END, index, step))
        return g.move("Slice", dtype, value, *bounds)

    # `partial` are the results of windows of `length` elements. A window starts at each element,
    # except for the last `lacking` elements.
    partial, length, lacking = x, 1, 0
    rest: list[tuple[Value, int, int]] = []  # windows that are combined with the result at the end
    remaining = axis.size
    while remaining > 1:
        if remaining % 2:
            rest.append((partial, length, lacking))
        shift = length * axis.dilation
        partial = g.add_with_casts(
            node, dtype, slice_part(partial, 0, shift), slice_part(partial, shift, 0)
        )
        length, lacking, remaining = 2 * length, lacking + shift, remaining // 2
    last = axis.extent - 1
    reduced = partial if lacking == last else slice_part(partial, 0, last - lacking)
    for other, other_length, other_lacking in reversed(rest):
        start = length * axis.dilation
        part = slice_part(other, start, last - other_lacking - start)
        reduced = g.add_with_casts(node, dtype, reduced, part)
        length += other_length
    return reduced if axis.stride == 1 else slice_part(reduced, 0, 0, axis.stride)


class StablehloReduceWindow(_Windows):
    """STABLEHLO_REDUCE_WINDOW: a function of two elements reduces each window to one element.

    The initial value pads between elements (base dilation) and around them.
    """

    codes = ("STABLEHLO_REDUCE_WINDOW",)
    operands = f"T:{_TYPES}, T [1*] -> T"

    @cached_property
    def _axes(self) -> list[WindowAxis]:
        o, rank = self.options, self.input(0).rank
        columns = o.window_dimensions, o.window_strides, o.window_dilations, o.base_dilations
        sizes, strides, dilations, bases = (tuple(column or (1,) * rank) for column in columns)
        pads = tuple(o.padding or (0,) * (2 * rank))
        lengths = {len(column) for column in (sizes, strides, dilations, bases, pads[::2])}
        if lengths != {rank} or len(pads) % 2 or min((*sizes, *strides, *dilations, *bases)) < 1:
            raise OperatorError(
                f"window dimensions, strides, dilations and base dilations must be {rank} positive "
                f"integers each, and padding {rank} pairs, got {columns} and {pads}"
            )
        return [
            WindowAxis(*values)
            for values in zip(sizes, strides, dilations, bases, pads[::2], pads[1::2], strict=True)
        ]

    @property
    def _function(self) -> str:
        return self.op.read_made(ComputationOptions).reduction


class ReduceWindow(_Windows):
    """REDUCE_WINDOW: each window is reduced to one element; sizes and strides are inputs."""

    codes = ("REDUCE_WINDOW",)
    operands = f"T:{_TYPES}, T [1*], int64, int64, int64 -> T"

    @cached_property
    def _axes(self) -> list[WindowAxis]:
        columns, rank = [ints(self, index) for index in (2, 3, 4)], self.input(0).rank
        if any(len(column) != rank or min(column, default=1) < 1 for column in columns):
            raise OperatorError(
                f"window dimensions, strides and dilations must be {rank} positive integers each, "
                f"got {columns}"
            )
        return [WindowAxis(*each) for each in zip(*columns, strict=True)]

    @property
    def _function(self) -> str:
        names = ("", "add", "mul", "min", "max", "and", "or")
        number = int(self.options.reduce_function)
        return names[number] if 0 <= number < len(names) else ""
