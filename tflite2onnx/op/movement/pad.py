"""PAD, PADV2 and MIRROR_PAD: elements around elements."""

from collections.abc import Collection, Sequence
from functools import cached_property, partial

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import (
    check_element_count,
    expect_rows,
    expect_type,
    read_pairs,
)
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import emit_sizes
from tflite2onnx.op.traits import Foldable, Movement
from tflite2onnx.quantization.declarations import Moves
from tflite2onnx.quantization.storage import QUANTIZED
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import is_known

_TYPES = tuple(dtype for dtype in DType if dtype.numpy is not None)


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
