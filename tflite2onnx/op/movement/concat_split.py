"""CONCATENATION, PACK, UNPACK, SPLIT, SPLIT_V and TILE: tensors joined, split and repeated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import (
    axis_of,
    drop_axis,
    expect,
    expect_list,
    expect_rank,
    integer,
    ints,
)
from tflite2onnx.op.common.runtime_shapes import (
    expect_axis,
    reshape_to,
    resolve_axis,
    sizes_of,
    split_shape,
)
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.quantize import QUANTIZED, Moves
from tflite2onnx.tensor import Array, DType


class Concatenation(DynamicShape, Foldable):
    """CONCATENATION: joins tensors along an axis; tensors without axes are joined to a list."""

    codes = ("CONCATENATION",)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    # The uint8 kernel rescales and the int8 kernel rejects mixed scales; other kernels copy.
    quantization = Moves(rescales=frozenset({DType.INT8, DType.UINT8}))

    def check(self) -> None:
        first = self.input(0)
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        axis = axis_of(self.options.axis, max(first.rank, 1))
        for tensor in inputs:
            size = (tensor if tensor.rank == first.rank else first).shape[axis : axis + 1]
            expect(tensor, (*first.shape[:axis], *size, *first.shape[axis + 1 :]), first.dtype)
        total = sum(t.shape[axis] for t in inputs) if first.rank else len(inputs)
        expect(self.output, (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype)

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        return g.in_compute_type("Concat", y.dtype, *xs, axis=xs[0].axis(self.options.axis))

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.concatenate([np.atleast_1d(i) for i in inputs], self.options.axis)]


class Pack(DynamicShape, Foldable):
    """PACK: tensors of one shape along a new axis."""

    codes = ("PACK",)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    quantization = Moves(rescales=QUANTIZED)

    @cached_property
    def _axis(self) -> int:
        return axis_of(self.options.axis, self.input(0).rank + 1)

    def check(self) -> None:
        first, count = self.input(0), len(self.op.inputs)
        for i in range(count):
            expect(self.input(i), first.shape, first.dtype)
        before, after = first.shape[: self._axis], first.shape[self._axis :]
        expect(self.output, (*before, count, *after), first.dtype)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        old = drop_axis(names, self._axis)
        return [Frame({~0: names} | dict.fromkeys(range(len(self.op.inputs)), old), names)]

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        axis = y.axis(self._axis)
        parts = [g.Unsqueeze(x, g.ints([axis])) for x in xs]
        return (
            g.in_compute_type("Concat", y.dtype, *parts, axis=axis) if len(parts) > 1 else parts[0]
        )

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.stack(inputs, self._axis)]


class Unpack(DynamicShape, Foldable):
    """UNPACK: the slices along an axis, each without this axis."""

    codes = ("UNPACK",)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    returns_tuple = True
    quantization = Moves(rescales=QUANTIZED)

    @cached_property
    def _axis(self) -> int:
        return axis_of(self.options.axis, self.input(0).rank)

    def check(self) -> None:
        x = self.input(0)
        count, size = len(self.op.outputs), x.shape[self._axis]
        if not 0 < count == size:
            raise OperatorError(
                f"{x.name} must have an output for each of {size} slices, got {count} outputs"
            )
        for tensor in self.op.outputs:
            expect(tensor, drop_axis(x.shape, self._axis), x.dtype)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        rest = drop_axis(names, self._axis)
        return [Frame({0: names} | {~i: rest for i in range(len(self.op.outputs))}, names)]

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *_: View) -> tuple[Value, ...]:
        axis = x.axis(self._axis)
        parts = _split(g, x, x.dtype, g.ints([1] * len(ys)), len(ys), axis)
        return tuple(g.Squeeze(part, g.ints([axis])) for part in parts)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return list(np.moveaxis(inputs[0], self._axis, 0))


class Split(DynamicShape, Foldable):
    """SPLIT into equal parts: axis, data. SPLIT_V into parts of given sizes: data, sizes, axis."""

    codes = ("SPLIT", "SPLIT_V")
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    returns_tuple = True
    quantization = Moves()

    @property
    def _data(self) -> int:
        return 1 if self.op.code == "SPLIT" else 0

    @property
    def has_data_dependent_shape(self) -> bool:
        return not self._axis_is_known or not self._are_sizes_known

    @property
    def _axis_is_known(self) -> bool:
        return self.input(0 if self.op.code == "SPLIT" else 2).is_constant

    @property
    def _are_sizes_known(self) -> bool:
        return self.op.code == "SPLIT" or self.input(1).is_constant

    @property
    def data_dependent_axes(self) -> list[int] | None:
        return [self._axis] if self._axis_is_known else None

    def data_dependent_dims(self) -> Sequence[Sequence[tuple[int, int]]]:
        groups = super().data_dependent_dims()
        if self._are_sizes_known and self.op.code == "SPLIT":  # all parts have one size
            axes = sorted({axis for group in groups for _, axis in group})
            return [[pair for (pair,) in groups if pair[1] == axis] for axis in axes]
        return groups

    @cached_property
    def _axis(self) -> int:
        number = integer(self, 0 if self.op.code == "SPLIT" else 2)
        return axis_of(number, self.input(self._data).rank)

    @cached_property
    def _sizes(self) -> list[int]:
        """The size of each part; a size of -1 stands for the rest of the axis."""
        whole, count = self.input(self._data).shape[self._axis], len(self.op.outputs)
        if self.op.code == "SPLIT":
            sizes = [whole // max(count, 1)] * count
        else:
            requested = ints(self, 1)
            rest = whole - sum(size for size in requested if size != -1)
            sizes = [rest if size == -1 else size for size in requested]
        if sum(sizes) != whole or min(sizes, default=-1) < 0 or len(sizes) != count:
            raise OperatorError(
                f"{count} sizes must be non-negative and add up to {whole}, got {sizes}"
            )
        return sizes

    def check(self) -> None:
        x = self.input(self._data)
        if not self._axis_is_known:
            self._check_dynamic()
            return
        axis = self._axis
        if self.has_data_dependent_shape:
            expect_list(self, 1, len(self.op.outputs))
            for tensor in self.op.outputs:
                size = tensor.shape[axis] if tensor.rank == x.rank else 1
                expect(tensor, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
            return
        for tensor, size in zip(self.op.outputs, self._sizes, strict=True):
            expect(tensor, (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)

    def _check_dynamic(self) -> None:
        x = self.input(self._data)
        expect_axis(self, 0 if self.op.code == "SPLIT" else 2)
        if self.op.code == "SPLIT_V":
            expect_list(self, 1, len(self.op.outputs))
        for tensor in self.op.outputs:
            expect_rank(tensor, x.rank, x.dtype)

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self._axis_is_known else []

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return self.has_data_dependent_shape or axis != self._axis

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View) -> tuple[Value, ...]:
        x = xs[self._data]
        if not self._axis_is_known:
            return self._split_anywhere(g, *xs)
        if self.has_data_dependent_shape:
            axis = x.axis(self._axis)
            whole = g.Gather(g.Shape(x), g.ints([axis]), axis=0)
            sizes = self._resolve_sizes(g, whole, xs[1])
            return _split(g, x, x.dtype, sizes, len(ys), axis)
        return _split(g, x, x.dtype, g.ints(self._sizes), len(ys), x.axis(self._axis))

    def _split_anywhere(self, g: Builder, *xs: View) -> tuple[Value, ...]:
        """Return the parts along an axis that is known at run time only."""
        x, other, count = xs[self._data], xs[1 - self._data], len(self.op.outputs)
        number = other if self.op.code == "SPLIT" else xs[2]
        parts = split_shape(g, sizes_of(g, x), resolve_axis(g, number, x.rank))
        if self.op.code == "SPLIT":
            sizes = g.Expand(g.Div(parts.size, g.ints([count])), g.ints([count]))
        else:
            sizes = self._resolve_sizes(g, parts.size, other)
        pieces = _split(g, reshape_to(g, x.value, parts.merge_sides(g)), x.dtype, sizes, count, 1)
        each = (g.Slice(sizes, g.ints([i]), g.ints([i + 1])) for i in range(count))
        return tuple(
            reshape_to(g, part, parts.before, size, parts.after)
            for part, size in zip(pieces, each, strict=True)
        )

    def _resolve_sizes(self, g: Builder, whole: Value, requested: View) -> Value:
        sizes = g.as_int64_list(requested)
        # A size of -1 stands for the rest: the whole axis without the sum of the other sizes.
        others = g.Add(g.ReduceSum(sizes, keepdims=1), g.ints([1]))
        is_rest = g.Equal(sizes, g.scalar(-1, DType.INT64))
        return g.Where(is_rest, g.Sub(whole, others), sizes)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return np.split(inputs[self._data], np.cumsum(self._sizes)[:-1], self._axis)


def _split(
    g: Builder, x: View | Value, dtype: DType, sizes: Value, count: int, axis: int
) -> tuple[Value, ...]:
    """Return `count` parts of x; Split runs in the compute type if it lacks this type."""
    if count == 1:
        return (g.recast(x, dtype, dtype),)
    compute_type = g.compute_type("Split", dtype)
    parts = g.node_outputs("Split", count, g.recast(x, dtype, compute_type), sizes, axis=axis)
    return tuple(g.recast(part, compute_type, dtype) for part in parts)


class Tile(DynamicShape, Foldable):
    """TILE: the elements, repeated along each axis."""

    codes = ("TILE",)
    shape_inputs = (1,)
    dynamic_axes = "..."
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    quantization = Moves()

    @cached_property
    def _multiples(self) -> list[int]:
        rank, multiples = self.input(0).rank, ints(self, 1)
        if len(multiples) != rank or min(multiples, default=0) < 0:
            raise OperatorError(f"multiples must be {rank} non-negative integers, got {multiples}")
        return multiples

    def check(self) -> None:
        x = self.input(0)
        if self.has_data_dependent_shape:
            expect_list(self, 1, x.rank)
            expect_rank(self.output, x.rank, x.dtype)
            return
        sizes = zip(x.shape, self._multiples, strict=True)
        expect(self.output, [size * times for size, times in sizes], x.dtype)

    def emit(self, g: Builder, y: View, x: View, multiples: View) -> Value:
        if self.has_data_dependent_shape:
            times = g.as_int64_list(multiples, x.order)
        elif y.sizes == x.sizes:
            return x.value
        else:
            times = g.ints(x.reorder(self._multiples))
        return g.with_compute_type("Tile", x.dtype, lambda v: g.Tile(v, times), x)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.tile(inputs[0], self._multiples)]
