"""CONCATENATION, PACK, UNPACK, SPLIT, SPLIT_V and TILE: tensors joined, split and repeated."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np

from tflite2onnx.graph import Op, copy_op
from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    axis_of,
    drop_axis,
    expect,
    expect_list,
    expect_type,
    integer,
    ints,
    require_equal_shapes,
)
from tflite2onnx.op.common.leading_axis import (
    Wider,
    prepend_axis,
    shift_axes_input,
    shift_axis_option,
)
from tflite2onnx.op.common.runtime_shapes import (
    emit_sizes,
    expect_axis,
    reshape_to,
    resolve_axis,
    split_shape,
)
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import AnySizes, Foldable, IndexesAxes, Movement
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import Dim, is_known, require_equal, require_number


class Concatenation(AnySizes, Foldable):
    """CONCATENATION: joins tensors along an axis; tensors without axes are joined to a list."""

    codes = ("CONCATENATION",)
    joins_elements = True
    evaluates_dimensions = True
    tflite = "... -> ..."
    # For inputs of different scales the uint8 kernel rescales, the int8 kernel fails, and
    # other kernels copy.
    quantization = Moves(rescales=frozenset({DType.INT8, DType.UINT8}))

    def infer_outputs(self) -> Sequence[OutputShape]:
        shapes = [self.input(i).shape for i in range(len(self.op.inputs))]
        if not shapes[0]:
            return [(len(shapes),)]
        axis = axis_of(self.options.axis, len(shapes[0]))
        before, after = (
            reduce(require_equal_shapes, parts)
            for parts in zip(*((s[:axis], s[axis + 1 :]) for s in shapes), strict=True)
        )
        return [(*before, sum(shape[axis] for shape in shapes), *after)]

    def check(self) -> None:
        first = self.input(0)
        inputs = [self.input(i) for i in range(len(self.op.inputs))]
        axis = axis_of(self.options.axis, max(first.rank, 1))
        for tensor in inputs:
            size = (tensor if tensor.rank == first.rank else first).shape[axis : axis + 1]
            expect(tensor, (*first.shape[:axis], *size, *first.shape[axis + 1 :]), first.dtype)
        expect_type(self.output, (first.dtype,))

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return (self.options.axis,)

    def add_leading_axis(self) -> Wider | None:
        if not self.input(0).rank:
            return None
        return shift_axis_option(self.op), range(len(self.op.inputs))

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        return g.add_with_casts("Concat", y.dtype, *xs, axis=xs[0].axis(self.options.axis))

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.concatenate([np.atleast_1d(i) for i in inputs], self.options.axis)]


class Pack(AnySizes, Foldable):
    """PACK: tensors of one shape along a new axis."""

    codes = ("PACK",)
    joins_elements = True
    evaluates_dimensions = True
    operands = "T* [...] -> T"
    quantization = Moves(rescales=QUANTIZED)
    add_leading_axis = prepend_axis(option="axis", data=())

    @cached_property
    def _axis(self) -> int:
        return axis_of(self.options.axis, self.input(0).rank + 1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        shapes = [self.input(i).shape for i in range(len(self.op.inputs))]
        first, *others = shapes
        shape: Sequence[Dim] = reduce(require_equal_shapes, others, first)
        return [(*shape[: self._axis], len(shapes), *shape[self._axis :])]

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.output.rank)
        old = drop_axis(names, self._axis)
        return [Frame({~0: names} | dict.fromkeys(range(len(self.op.inputs)), old), names)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return ()

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        axis = y.axis(self._axis)
        parts = [g.unsqueeze(x, [axis], y.dtype) for x in xs]
        is_single = len(parts) == 1
        return parts[0] if is_single else g.add_with_casts("Concat", y.dtype, *parts, axis=axis)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.stack(inputs, self._axis)]


class Unpack(AnySizes, Foldable, IndexesAxes):
    """UNPACK: the slices along an axis, each without this axis."""

    codes = ("UNPACK",)
    facts = (Fact.TAKES,)
    evaluates_dimensions = True
    operands = "T -> T*"
    quantization = Moves(rescales=QUANTIZED)
    add_leading_axis = prepend_axis(option="axis")

    @cached_property
    def _axis(self) -> int:
        return axis_of(self.options.axis, self.input(0).rank)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, count = self.input(0), len(self.op.outputs)
        require_number(x.shape[self._axis], count, f"{x.name} must have {count} slices")
        return [drop_axis(x.shape, self._axis)] * count

    def check(self) -> None:
        count, size = len(self.op.outputs), self.input(0).shape[self._axis]
        if not 0 < count == size:
            raise OperatorError(f"it must have an output for each of {size} slices, got {count}")

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        rest = drop_axis(names, self._axis)
        return [Frame({0: names} | {~i: rest for i in range(len(self.op.outputs))}, names)]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return () if len(self.op.outputs) == 1 else (self._axis,)

    def keep_axis(self, axis: int) -> Op | None:
        if axis != self._axis:
            return None
        x = self.input(0)
        return copy_op(self.op, x, replace(self.output, shape=x.shape))

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *_: View) -> tuple[Value, ...]:
        axis = x.axis(self._axis)
        parts = _split_tensor(g, x, x.dtype, g.ints([1] * len(ys)), len(ys), axis)
        return tuple(g.squeeze(part, [axis], x.dtype) for part in parts)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        slices = np.moveaxis(inputs[0], self._axis, 0)
        return list(slices) if len(slices) == len(self.op.outputs) else None


class Split(Movement, Foldable, IndexesAxes):
    """SPLIT into equal parts: axis, data. SPLIT_V into parts of given sizes: data, sizes, axis."""

    codes = ("SPLIT", "SPLIT_V")
    facts = (Fact.TAKES,)
    evaluates_dimensions = True
    tflite = "... -> ..."
    returns_tuple = True

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
        if self.op.code == "SPLIT_V" or is_known(whole):  # the kernel requires parts of equal size
            require_equal(sum(sizes), whole, f"{count} sizes must add up to {whole}, got {sizes}")
        if any(is_known(size) and size < 0 for size in sizes) or len(sizes) != count:
            raise OperatorError(f"{count} sizes from 0 on must add up to {whole}, got {sizes}")
        return sizes

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape, count = self.input(self._data).shape, len(self.op.outputs)
        if not self._are_sizes_known:
            expect_list(self, 1, count)
        if not self._axis_is_known:
            sizes = [Unknown() for _ in shape]  # All parts of SPLIT have the same size.
            return [sizes if self.op.code == "SPLIT" else [Unknown() for _ in shape]] * count
        parts = self._sizes if self._are_sizes_known else [Unknown() for _ in range(count)]
        axis = self._axis
        return [(*shape[:axis], size, *shape[axis + 1 :]) for size in parts]

    def check(self) -> None:
        x = self.input(self._data)
        for tensor in self.op.outputs:
            expect_type(tensor, (x.dtype,))
        if self.has_data_dependent_shape:
            expect_axis(self, 0 if self.op.code == "SPLIT" else 2)

    def frames(self) -> Sequence[Frame]:
        return super().frames() if self._axis_is_known else []

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand != self._data or not self._axis_is_known:
            return None
        return () if len(self.op.outputs) == 1 else (self._axis,)

    def keep_axis(self, axis: int) -> Op | None:
        if len(self.op.outputs) > 1 or axis != self._axis:
            return None
        return copy_op(self.op, self.input(self._data), self.output)

    def add_leading_axis(self) -> Wider | None:
        op = shift_axes_input(self.op, 0 if self.op.code == "SPLIT" else 2)
        return None if op is None else (op, (self._data,))

    def emit(self, g: Builder, ys: tuple[View, ...], *xs: View) -> tuple[Value, ...]:
        x = xs[self._data]
        if not self._axis_is_known:
            return self._split_anywhere(g, *xs)
        axis = x.axis(self._axis)
        if self.has_data_dependent_shape or self._axis in x.tensor.symbols:
            whole = g.Gather(g.Shape(x), [axis], axis=0)
            sizes = self._compute_sizes(g, whole, xs[1 - self._data])
            return _split_tensor(g, x, x.dtype, sizes, len(ys), axis)
        return _split_tensor(g, x, x.dtype, g.ints(self._sizes), len(ys), axis)

    def _split_anywhere(self, g: Builder, *xs: View) -> tuple[Value, ...]:
        """Return the parts along an axis that is known at run time only."""
        x, other, count = xs[self._data], xs[1 - self._data], len(self.op.outputs)
        number = other if self.op.code == "SPLIT" else xs[2]
        parts = split_shape(g, emit_sizes(g, x), resolve_axis(g, number, x.rank))
        sizes = self._compute_sizes(g, parts.size, other)
        merged = reshape_to(g, x.value, parts.merge_sides(g))
        pieces = _split_tensor(g, merged, x.dtype, sizes, count, 1)
        part_sizes = (g.Slice(sizes, [i], [i + 1]) for i in range(count))
        return tuple(
            reshape_to(g, part, parts.before, size, parts.after)
            for part, size in zip(pieces, part_sizes, strict=True)
        )

    def _compute_sizes(self, g: Builder, whole: Value, requested: View) -> Value:
        count = [len(self.op.outputs)]
        if self.op.code == "SPLIT":
            return g.Expand(g.Div(whole, count), count)
        sizes = g.as_int64_list(requested)
        # A size of -1 stands for the remaining elements: the size of the axis minus the sum of the
        # other sizes, to which -1 adds 1.
        others = g.Add(g.ReduceSum(sizes, keepdims=1), [1])
        is_rest = g.Equal(sizes, -1)
        return g.Where(is_rest, g.Sub(whole, others), sizes)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return np.split(inputs[self._data], np.cumsum(self._sizes)[:-1], self._axis)


def _split_tensor(
    g: Builder, x: View | Value, dtype: DType, sizes: Value, count: int, axis: int
) -> tuple[Value, ...]:
    """Return `count` parts of x, with casts if Split lacks the type."""
    if count == 1:
        return (g.recast(x, dtype, dtype),)
    compute_type = g.compute_type("Split", dtype)
    parts = g.node_outputs("Split", count, g.recast(x, dtype, compute_type), sizes, axis=axis)
    return tuple(g.recast(part, compute_type, dtype) for part in parts)


class Tile(Movement, Foldable):
    """TILE: the elements, repeated along each axis."""

    codes = ("TILE",)
    facts = (Fact.REPEATS,)
    evaluates_dimensions = True
    shape_inputs = (1,)
    operands = "T, any -> T"
    tflite = "... -> ..."
    add_leading_axis = prepend_axis({1: 1})

    @cached_property
    def _multiples(self) -> list[int]:
        rank, multiples = self.input(0).rank, ints(self, 1)
        if len(multiples) != rank or any(is_known(n) and n < 0 for n in multiples):
            raise OperatorError(f"multiples must be {rank} non-negative integers, got {multiples}")
        return multiples

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0)
        if self.has_data_dependent_shape:
            expect_list(self, 1, x.rank)
            return [[Unknown() for _ in x.shape]]
        return [[size * repeats for size, repeats in zip(x.shape, self._multiples, strict=True)]]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand or self.has_data_dependent_shape:
            return None
        return [axis for axis, repeats in enumerate(self._multiples) if repeats != 1]

    def emit(self, g: Builder, y: View, x: View, multiples: View) -> Value:
        if not self.has_data_dependent_shape and y.sizes == x.sizes:
            return x.value
        return g.move("Tile", x.dtype, x, g.as_int64_list(multiples, x.order))

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.tile(inputs[0], self._multiples)]
