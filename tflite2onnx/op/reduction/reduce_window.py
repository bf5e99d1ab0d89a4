"""STABLEHLO_REDUCE_WINDOW and REDUCE_WINDOW: what is in a window becomes one element."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect, expect_type, ints
from tflite2onnx.op.movement.dilate import dilate_axes
from tflite2onnx.op.movement.pad import pad_axes
from tflite2onnx.tensor import DType

_TYPES = (
    DType.FLOAT32,
    DType.FLOAT64,
    DType.INT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.BOOL,
)
_MOST_AXES = 6

# The node for what LiteRT calls the function, by the operator in the body and by the option.
_NODES = {
    **dict.fromkeys(("ADD", "STABLEHLO_ADD"), "Add"),
    **dict.fromkeys(("MUL", "STABLEHLO_MULTIPLY"), "Mul"),
    **dict.fromkeys(("MAXIMUM", "STABLEHLO_MAXIMUM"), "Max"),
    **dict.fromkeys(("MINIMUM", "STABLEHLO_MINIMUM"), "Min"),
    **dict.fromkeys(("LOGICAL_AND", "STABLEHLO_AND", "ALL"), "And"),
    **dict.fromkeys(("LOGICAL_OR", "STABLEHLO_OR", "ANY"), "Or"),
}
# What bools become, which the kernel computes with as int8: the last bits of their sums, say.
_OF_BOOLS = {"Add": "Or", "Mul": "And", "Max": "Or", "Min": "And"}


class Axis(NamedTuple):
    """The window along one axis; elements are counted after `base` has been done to them."""

    size: int
    stride: int
    dilation: int
    base: int = 1
    low: int = 0
    high: int = 0

    def padded_size(self, size: int) -> int:
        """Return the size of the axis with all that comes between its elements and around them."""
        return max(size - 1, 0) * self.base + min(size, 1) + self.low + self.high

    @property
    def reach(self) -> int:
        """How many elements a window lies across."""
        return (self.size - 1) * self.dilation + 1

    def window_count(self, size: int) -> int:
        """Return how many windows there are."""
        return max((self.padded_size(size) - self.reach) // self.stride + 1, 0)


class _Windows(Operator):
    """What both share. All functions are associative: an axis is reduced after another.

    Of two windows side by side a window of twice the size is made, so that it takes few nodes
    whatever its size.
    """

    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    parameters: ClassVar[int] = 0  # inputs that say what the windows are

    @cached_property
    def _axes(self) -> list[Axis]:
        """The windows along each TFLite axis."""
        raise NotImplementedError

    @property
    def _function(self) -> str:
        """What the option or the sub-graph calls the function."""
        raise NotImplementedError

    @property
    def _node(self) -> str:
        function = self._function
        if function not in _NODES:
            raise OperatorError(f"it reduces windows by {function or 'nothing'}")
        return _NODES[function]

    def check(self) -> None:
        if len(self.op.inputs) != self.parameters + 2:
            raise OperatorError(f"it has {len(self.op.inputs)} inputs")
        x, first, axes = self.input(0), self.input(1), self._axes
        _ = self._node  # checks it
        expect_type(x, _TYPES)
        expect(first, (1,) * first.rank, x.dtype)
        for tensor in (x, first, self.output):
            if tensor.quantization is not None:
                raise OperatorError(f"{tensor.name} is quantized")
        sizes = [axis.window_count(size) for axis, size in zip(axes, x.shape, strict=True)]
        if not 0 < x.rank <= _MOST_AXES or 0 in x.shape or 0 in sizes:
            raise OperatorError(f"windows of {list(x.shape)} make {sizes} elements")
        expect(self.output, sizes, x.dtype)

    def emit(self, g: Builder, y: View, x: View, first: View, *_: View) -> Value:
        axes = x.reorder(self._axes)
        spread = dilate_axes(g, x, [axis.base for axis in axes], first)
        low, high = ([getattr(axis, side) for axis in axes] for side in ("low", "high"))
        spread = pad_axes(g, spread, x.dtype, low, high, first.reshape(()))
        sizes = [axis.padded_size(size) for axis, size in zip(axes, x.shape, strict=True)]
        node, dtype = self._node_and_type(x.dtype)
        value = g.recast(spread, x.dtype, dtype)
        for place, axis in enumerate(axes):
            value = _reduce_axis(g, value, node, axis, (place, sizes[place]), dtype)
        if not self._is_neutral(first, node):
            start = g.recast(first.reshape(()), x.dtype, dtype)
            value = g.in_compute_type(node, dtype, start, value)
        return g.recast(value, dtype, x.dtype)

    def _node_and_type(self, dtype: DType) -> tuple[str, DType]:
        """Return the node, and the type that it runs in and that wraps around alike."""
        node = self._node
        if node in ("And", "Or"):
            return node, DType.BOOL
        if dtype is DType.BOOL:
            return _OF_BOOLS[node], dtype
        narrow = dtype in (DType.INT8, DType.UINT8, DType.INT16)
        return node, DType.INT32 if narrow else dtype

    def _is_neutral(self, first: View, node: str) -> bool:
        """Return whether what the windows start with makes no difference to them."""
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
    g: Builder, x: Value, node: str, axis: Axis, place: tuple[int, int], dtype: DType
) -> Value:
    """Reduce windows along the axis at a place, which has a size."""
    at, size = place

    def slice_part(value: Value, start: int, stop: int, step: int = 1) -> Value:
        bounds = (g.ints([number]) for number in (start, stop, at, step))
        return g.with_compute_type("Slice", dtype, lambda v: g.Slice(v, *bounds), value)

    # `some` are the windows of `done` elements from each place on, which are `count`.
    some, done, count = x, 1, size
    rest: list[tuple[Value, int]] = []  # windows that are left over, and their sizes
    wanted = axis.size
    while wanted > 1:
        if wanted % 2:
            rest.append((some, done))
        shift = done * axis.dilation
        some = g.in_compute_type(
            node, dtype, slice_part(some, 0, count - shift), slice_part(some, shift, count)
        )
        done, count, wanted = 2 * done, count - shift, wanted // 2
    windows = size - axis.reach + 1
    made = some if count == windows else slice_part(some, 0, windows)
    for other, more in reversed(rest):
        start = done * axis.dilation
        made = g.in_compute_type(node, dtype, made, slice_part(other, start, start + windows))
        done += more
    return made if axis.stride == 1 else slice_part(made, 0, windows, axis.stride)


class StablehloReduceWindow(_Windows):
    """STABLEHLO_REDUCE_WINDOW: each window becomes one element, by a function of two.

    Before that, what windows start with comes between elements and around them.
    """

    codes = ("STABLEHLO_REDUCE_WINDOW",)

    @cached_property
    def _axes(self) -> list[Axis]:
        o, rank = self.options, self.input(0).rank
        columns = o.window_dimensions, o.window_strides, o.window_dilations, o.base_dilations
        sizes, strides, dilations, bases = (tuple(column or (1,) * rank) for column in columns)
        pads = tuple(o.padding or (0,) * (2 * rank))
        lengths = {len(column) for column in (sizes, strides, dilations, bases, pads[::2])}
        if lengths != {rank} or len(pads) % 2 or min((*sizes, *strides, *dilations, *bases)) < 1:
            raise OperatorError(f"windows {columns} of {rank} axes, with paddings {pads}")
        return [
            Axis(*each)
            for each in zip(sizes, strides, dilations, bases, pads[::2], pads[1::2], strict=True)
        ]

    @property
    def _function(self) -> str:
        return str(self.options.get("computation", ""))


class ReduceWindow(_Windows):
    """REDUCE_WINDOW: each window becomes one element; its sizes and steps are inputs."""

    codes = ("REDUCE_WINDOW",)
    parameters = 3

    @cached_property
    def _axes(self) -> list[Axis]:
        columns, rank = [ints(self, index) for index in (2, 3, 4)], self.input(0).rank
        for index in (2, 3, 4):
            expect_type(self.input(index), (DType.INT64,))
        if any(len(column) != rank or min(column, default=1) < 1 for column in columns):
            raise OperatorError(f"windows {columns} of {rank} axes")
        return [Axis(*each) for each in zip(*columns, strict=True)]

    @property
    def _function(self) -> str:
        names = ("", "ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY")
        index = self.options.reduce_function
        return index if isinstance(index, str) else names[index] if 0 <= index < 7 else ""
