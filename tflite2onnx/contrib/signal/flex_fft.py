"""TensorFlow's Fourier transforms of any length; complex numbers are pairs (`lower_complex`)."""

from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from tflite2onnx.contrib.signal.rfft import find_complex_shape, make_synthesis_matrix, pair_axes
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count, ints
from tflite2onnx.op.common.fourier import transform_real
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import take_entries
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Shape, Sizes
from tflite2onnx.utils.dimension import is_known

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


class FlexFourier(DynamicShape):
    """Complex and real Fourier transforms and their inverses, over one, two or three axes.

    Real transforms have half of the frequencies, and are cropped or zero-padded to a length.
    """

    codes = tuple(sorted(_KINDS))
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

    def infer_outputs(self) -> Sequence[OutputShape]:
        _, pairs = self._pairs
        lengths = self._halved_lengths if self._kind.real and pairs else self._lengths
        return [(*self._split_shape[0], *lengths, *(pair_axes(self.output) if pairs else ()))]

    def emit(self, g: Builder, y: View, x: View, *_: View) -> Value:
        # DFT needs a leading batch axis, and a last axis of one real number or of a pair.
        (lead, sizes), kind, pairs = self._split_shape, self._kind, self._pairs
        batch_axes, value = len(lead) or 1, x.value
        new_axes = ([] if lead else [0]) + ([] if pairs[0] else [batch_axes + kind.axes])
        if new_axes:
            value = g.Unsqueeze(value, g.ints(new_axes))
        if kind.real:
            lengths = self._halved_lengths if kind.inverse else self._lengths
            more = [b - a for a, b in zip(sizes, lengths, strict=True)]
            value = _fit_lengths(g, value, batch_axes, more, x.dtype)
        named = x.sizes[len(lead) :] if not kind.real else self._lengths
        value = self._transform_axes(g, value, x.sizes[: len(lead)] or (1,), named, x.dtype)
        if kind.real and kind.inverse:
            value = self._synthesize_real(g, value, x.dtype)
        return value if lead else g.Squeeze(value, g.ints([0]))

    def _transform_axes(
        self, g: Builder, value: Value, lead: Sizes, sizes: Sizes, dtype: DType
    ) -> Value:
        """Return the transform along all axes, except the last of an inverse to real numbers."""
        kind, axes = self._kind, [*range(len(lead), len(lead) + self._kind.axes)]
        if kind.real:
            *axes, last = axes
            if not kind.inverse:
                rows, width = (*lead, *self._lengths[:-1]), self._lengths[-1]
                transform = transform_real(g, value, rows, width, dtype)
                value = g.dft(value, last, onesided=True) if transform is None else transform
        invert = partial(_invert_transform, dtype=dtype)
        for axis, size in zip(axes, sizes, strict=False):
            value = invert(g, value, axis, size) if kind.inverse else g.dft(value, axis)
        return value

    def _synthesize_real(self, g: Builder, value: Value, dtype: DType) -> Value:
        """Return real numbers from half of the frequencies of the last axis, by a product."""
        width = self._lengths[-1]
        matrix = make_synthesis_matrix(width).reshape(-1, _PAIR, width).astype(dtype.numpy)
        parts = (
            g.MatMul(g.Gather(value, g.scalar(i, DType.INT64), axis=-1), g.constant(matrix[:, i]))
            for i in range(_PAIR)
        )
        return g.Add(*parts)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < len(self._split_shape[0]) or not self._kind.real


def _invert_transform(g: Builder, x: Value, axis: int, size: int | str, dtype: DType) -> Value:
    """Return an inverse transform along an axis of this size.

    Runtimes scale float64 by the reciprocal of the size rounded to float32, so float64 uses the
    conjugate of a forward transform.
    """
    if dtype is not DType.FLOAT64:
        return g.dft(x, axis, inverse=True)
    mirror = np.array([1.0, -1.0])
    transform = g.dft(g.Mul(x, mirror), axis)
    if isinstance(size, int):
        return g.Mul(transform, mirror / size)
    count = g.cast(take_entries(g, g.Shape(x), [axis]), dtype)
    return g.Div(g.Mul(transform, mirror), count)


def _fit_lengths(
    g: Builder, value: Value, batch_axes: int, more: Sequence[int], dtype: DType
) -> Value:
    """Return numbers or pairs, zero-padded by `more` per axis, or cropped if it is negative."""
    if not any(more):
        return value
    pads = [0] * (2 * batch_axes + len(more) + 1) + [*more, 0]
    return g.Pad(value, g.ints(pads), g.scalar(0, dtype))
