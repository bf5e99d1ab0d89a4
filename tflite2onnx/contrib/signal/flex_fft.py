"""TensorFlow's Fourier transforms of any length; complex numbers are pairs (`lower_complex`)."""

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from tflite2onnx.contrib.signal.rfft import find_complex_shape, make_synthesis_matrix, pair_axes
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import check_element_count, ints
from tflite2onnx.op.common.fourier import transform_real
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import emit_sizes, take_entries
from tflite2onnx.op.traits import AnySizes
from tflite2onnx.tensor import DType, Shape, Sizes
from tflite2onnx.utils.dimension import Dim, is_known

_PAIR = 2


class _FourierKind(NamedTuple):
    """The number of axes, whether input or output is real, and whether the transform is inverse."""

    axes: int
    real: bool
    inverse: bool


_KINDS = {
    f"Flex{prefix}FFT{suffix}": _FourierKind(axes, "R" in prefix, "I" in prefix)
    for axes, suffix in ((1, ""), (2, "2D"), (3, "3D"))
    for prefix in ("", "I", "R", "IR")
}


class FlexFourier(AnySizes):
    """Complex and real Fourier transforms and their inverses, over one, two or three axes.

    Real transforms have half of the frequencies, and are cropped or zero-padded to a length. Sizes
    and lengths may be known at run time only.
    """

    codes = tuple(sorted(_KINDS))
    shape_inputs = (1,)
    operands = "T:float32|float64, ... -> T"
    add_leading_axis = prepend_axis()

    @property
    def _kind(self) -> _FourierKind:
        return _KINDS[self.op.code]

    @property
    def _pairs(self) -> tuple[bool, bool]:
        """Whether the input, and whether the output, is complex."""
        kind = self._kind
        return not kind.real or kind.inverse, not kind.real or not kind.inverse

    @cached_property
    def _split_shape(self) -> tuple[Shape, Shape]:
        """The sizes of the batch axes, and of the transformed axes."""
        x, (pairs, _) = self.input(0), self._pairs
        shape = find_complex_shape(x) if pairs else x.shape
        is_valid = not pairs or x.shape in (shape, (*shape, _PAIR))
        if len(shape) < self._kind.axes or 0 in shape or not is_valid:
            raise OperatorError(
                f"{x.name} must have {self._kind.axes} or more non-empty axes"
                f"{' and pairs' if pairs else ''}, got {list(x.shape)}"
            )
        cut = len(shape) - self._kind.axes
        return shape[:cut], shape[cut:]

    @cached_property
    def _lengths(self) -> Shape:
        lengths = tuple(ints(self, 1)) if self._kind.real else self._split_shape[1]
        known = [n for n in lengths if is_known(n)]
        if len(lengths) != self._kind.axes or min(known, default=1) < 1:
            raise OperatorError(
                f"its lengths must be {self._kind.axes} positive numbers, got {list(lengths)}"
            )
        power = 2 if self._kind.real and self._kind.inverse else 1
        check_element_count(max(known, default=1) ** power)
        return lengths

    @property
    def _halved_lengths(self) -> Shape:
        """The lengths, with the last reduced to its half of the frequencies."""
        return (*self._lengths[:-1], self._lengths[-1] // 2 + 1)

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        x, batch_axes = self.input(0), len(self._split_shape[0])
        return None if operand else range(batch_axes, x.rank)

    @property
    def _fixes_sizes(self) -> bool:
        """Whether the sizes and the lengths of the transformed axes are known."""
        axes = range(len(self._split_shape[0]), self.input(0).rank)
        return not self.has_data_dependent_shape and not self.input(0).symbols.keys() & {*axes}

    def infer_outputs(self) -> Sequence[OutputShape]:
        _, pairs = self._pairs
        lengths: Sequence[Dim | Unknown] = [Unknown() for _ in range(self._kind.axes)]
        if not self.has_data_dependent_shape:
            lengths = self._halved_lengths if self._kind.real and pairs else self._lengths
        return [(*self._split_shape[0], *lengths, *(pair_axes(self.output) if pairs else ()))]

    def emit(self, g: Builder, y: View, x: View, *lengths: View) -> Value:
        # DFT needs a leading batch axis, and a last axis of one real number or of a pair.
        (lead, _), kind, pairs = self._split_shape, self._kind, self._pairs
        batch_axes, value = len(lead) or 1, x.value
        new_axes = ([] if lead else [0]) + ([] if pairs[0] else [batch_axes + kind.axes])
        if new_axes:
            value = g.Unsqueeze(value, g.ints(new_axes))
        if kind.real:
            value = self._fit_lengths(g, x, value, batch_axes, lengths[0])
        value = self._transform_axes(g, value, x.sizes[: len(lead)] or (1,), x.dtype)
        if kind.real and kind.inverse:
            value = self._synthesize_real(g, value, batch_axes, lengths[0], x.dtype)
        return value if lead else g.Squeeze(value, g.ints([0]))

    def _fit_lengths(
        self, g: Builder, x: View, value: Value, batch_axes: int, lengths: View
    ) -> Value:
        """Return x, which is `value` with new axes, zero-padded to the lengths, or cropped.

        Negative pads crop.
        """
        kind, axes = self._kind, self._kind.axes
        before = [0] * (2 * batch_axes + axes + 1)
        wanted = g.as_int64_list(lengths)
        if kind.inverse:
            halves, ones = [1] * (axes - 1) + [2], [0] * (axes - 1) + [1]
            wanted = g.Add(g.Div(wanted, g.ints(halves)), g.ints(ones))
        lead = len(self._split_shape[0])
        gaps = g.Sub(wanted, take_entries(g, emit_sizes(g, x), range(lead, lead + axes)))
        if gaps.data is not None and not gaps.data.any():
            return value
        pads = g.Concat(g.ints(before), gaps, g.ints([0]), axis=0)
        return g.Pad(value, pads, g.scalar(0, x.dtype))

    def _transform_axes(self, g: Builder, value: Value, lead: Sizes, dtype: DType) -> Value:
        """Return the transform along all axes, except the last of an inverse to real numbers."""
        kind, axes = self._kind, [*range(len(lead), len(lead) + self._kind.axes)]
        sizes: Sequence[int | None] = self._lengths if self._fixes_sizes else [None] * len(axes)
        if kind.real:
            *axes, last = axes
            if not kind.inverse:
                transform = None
                if self._fixes_sizes:
                    rows, width = (*lead, *self._lengths[:-1]), self._lengths[-1]
                    transform = transform_real(g, value, rows, width, dtype)
                value = g.dft(value, last, onesided=True) if transform is None else transform
        invert = partial(_invert_transform, dtype=dtype)
        for axis, size in zip(axes, sizes, strict=False):
            value = invert(g, value, axis, size) if kind.inverse else g.dft(value, axis)
        return value

    def _synthesize_real(
        self, g: Builder, value: Value, batch_axes: int, lengths: View, dtype: DType
    ) -> Value:
        """Return real numbers from half of the frequencies of the last axis.

        It is a product, or the real parts of an inverse transform of all frequencies, if the length
        is not known: the others are the conjugates of the second half.
        """
        if not self._fixes_sizes:
            axis = batch_axes + self._kind.axes - 1
            count = take_entries(g, g.as_int64_list(lengths), [self._kind.axes - 1])
            start = g.Div(g.Sub(count, g.ints([1])), g.ints([2]))
            others = g.Slice(value, start, g.ints([0]), g.ints([axis]), g.ints([-1]))
            conjugates = g.Mul(others, np.array([1, -1], dtype.numpy))
            whole = g.Concat(value, conjugates, axis=axis)
            numbers = _invert_transform(g, whole, axis, None, dtype)
            return g.Gather(numbers, g.scalar(0, DType.INT64), axis=-1)
        width = self._lengths[-1]
        matrix = make_synthesis_matrix(width).reshape(-1, _PAIR, width).astype(dtype.numpy)
        parts = (
            g.MatMul(g.Gather(value, g.scalar(i, DType.INT64), axis=-1), g.constant(matrix[:, i]))
            for i in range(_PAIR)
        )
        return g.Add(*parts)


def _invert_transform(g: Builder, x: Value, axis: int, size: int | None, dtype: DType) -> Value:
    """Return an inverse transform along an axis of this size, None if it is not known.

    Runtimes scale float64 by the reciprocal of the size rounded to float32, so float64 uses the
    conjugate of a forward transform.
    """
    if dtype is not DType.FLOAT64:
        return g.dft(x, axis, inverse=True)
    mirror = np.array([1.0, -1.0])
    transform = g.dft(g.Mul(x, mirror), axis)
    if size is not None:
        return g.Mul(transform, mirror / size)
    count = g.cast(take_entries(g, g.Shape(x), [axis]), dtype)
    return g.Div(g.Mul(transform, mirror), count)
