"""PAD, PADV2 and MIRROR_PAD: elements before and after those of an axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type, ints
from tflite2onnx.op.common.leading_axis import prepend_entries
from tflite2onnx.op.common.runtime_shapes import sizes_of
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
    """Return x with `low` elements before and `high` elements after those of each stored axis.

    Negative numbers remove elements.
    """
    if not any((*low, *high)):
        return x if isinstance(x, Value) else x.value
    pads = g.ints([*low, *high])
    return g.with_compute_type("Pad", dtype, lambda v, c: g.Pad(v, pads, c), x, fill)


class _Padding(Movement):
    """Base of the operators: the second input, [rank, 2], is the number of elements to add."""

    shape_inputs = (1,)
    tflite = "... -> ..."

    @cached_property
    def _pads(self) -> list[tuple[int, int]]:
        """The number of elements before and after those of each axis."""
        rank, table = self.input(0).rank, self.input(1)
        flat = ints(self, 1)
        if table.shape != (rank, 2) or any(is_known(n) and n < 0 for n in flat):
            raise OperatorError(
                f"paddings must be non-negative and have the shape {[rank, 2]}, "
                f"got {flat} of the shape {list(table.shape)}"
            )
        return list(zip(flat[::2], flat[1::2], strict=True))

    def infer_outputs(self) -> Sequence[OutputShape]:
        shape = self.input(0).shape
        if self.has_data_dependent_shape:
            return [[Unknown() for _ in shape]]
        return [[size + sum(pads) for size, pads in zip(shape, self._pads, strict=True)]]

    def mixed_axes(self, operand: int) -> Collection[int] | None:
        if operand or self.has_data_dependent_shape:
            return None
        return [axis for axis, pads in enumerate(self._pads) if any(pads)]

    def add_leading_axis(self) -> tuple[Op, Collection[int]] | None:
        changed = prepend_entries(self.op, {1: (0, 0)})
        return None if changed is None else (changed, (0,))

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, _TYPES)
        if self.has_data_dependent_shape:
            expect_type(self.input(1), (DType.INT32, DType.INT64))
            expect(self.input(1), (x.rank, 2), self.input(1).dtype)
        else:
            _ = self._pads  # raises OperatorError if invalid
        expect_type(self.output, (x.dtype,))

    def _order_pads(self, g: Builder, x: View, table: View) -> Value:
        """Return the padding before each stored axis, then the padding after each, int64."""
        if self.has_data_dependent_shape:
            return g.reshape(
                g.Transpose(g.as_int64_list(table, x.order), perm=[1, 0]), [2 * x.rank]
            )
        begins, ends = zip(*x.reorder(self._pads), strict=True)
        return g.ints([*begins, *ends])

    def _emit_pad(
        self, g: Builder, x: View, table: View, *fill: Value, mode: str | None = None
    ) -> Value:
        pads = self._order_pads(g, x, table)
        return g.with_compute_type(
            "Pad", x.dtype, lambda v, *c: g.Pad(v, pads, *c, mode=mode), x, *fill
        )


class Pad(_Padding, Foldable):
    """Pads with zeros (PAD), or with a value that is an input (PADV2)."""

    codes = ("PAD", "PADV2")

    def check(self) -> None:
        super().check()
        if self._has_value:
            value = self.input(2)
            expect(value, () if value.rank == 0 else (1,), self.input(0).dtype)

    @property
    def _has_value(self) -> bool:
        return len(self.op.inputs) > 2 and self.op.inputs[2] is not None

    def emit(
        self, g: Builder, y: View, x: View, pads: View, value: View | None = None, *_: View
    ) -> Value:
        if not self.has_data_dependent_shape and not np.any(self._pads):
            return x.value
        # The stored integer that stands for 0 is the zero point.
        fill = g.scalar(y.storage.zero_point, y.dtype) if value is None else value.reshape(())
        return self._emit_pad(g, x, pads, fill)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        value = inputs[2].reshape(()) if self._has_value else 0
        return [np.pad(inputs[0], self._pads, constant_values=value)]


class MirrorPad(_Padding, Foldable):
    """MIRROR_PAD: mirrored elements; REFLECT leaves out the edge element, SYMMETRIC repeats it."""

    codes = ("MIRROR_PAD",)
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
            if max(pads) > max(size - self._reflects, 0):
                raise OperatorError(
                    f"padding must be at most {max(size - self._reflects, 0)} along an axis of "
                    f"{size} elements, got {max(pads)}"
                )

    def emit(self, g: Builder, y: View, x: View, table: View) -> Value:
        if not self.has_data_dependent_shape and not np.any(self._pads):
            return x.value
        if self._reflects:
            return self._emit_pad(g, x, table, mode="reflect")
        if not self.has_data_dependent_shape and np.max(self._pads) == 1:
            return self._emit_pad(g, x, table, mode="edge")  # one element is its own mirror
        # Pad has no symmetric mode. A Gather for each axis copies less than slices and a Concat.
        return g.with_compute_type(
            "Gather", x.dtype, lambda v: self._mirror_axes(g, x, v, table), x.value
        )

    def _mirror_axes(self, g: Builder, x: View, value: Value, table: View) -> Value:
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
        one, count = g.scalar(1, DType.INT64), g.reshape(_gather_entry(g, sizes_of(g, x), axis), [])
        pads = g.as_int64_list(table)
        before, after = (
            g.Gather(_gather_entry(g, pads, axis), g.scalar(end, DType.INT64), axis=1)
            for end in (0, 1)
        )
        first, last = g.Neg(g.reshape(before, [])), g.Add(count, g.reshape(after, []))
        # Reflect at the left edge (-1 -> 0), then at the right (size -> size - 1).
        index = g.Range(first, last, one)
        index = g.in_compute_type("Max", DType.INT64, index, g.Sub(g.Neg(index), one))
        reflected = g.Sub(g.Sub(g.Add(count, count), one), index)
        return g.in_compute_type("Min", DType.INT64, index, reflected)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.pad(inputs[0], self._pads, "reflect" if self._reflects else "symmetric")]


def _gather_entry(g: Builder, numbers: Value, axis: int) -> Value:
    return g.Gather(numbers, g.ints([axis]), axis=0)
