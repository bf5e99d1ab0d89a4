"""Fourier transforms, and parts of complex numbers, which are pairs (see `lower_complex`)."""

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tflite2onnx.contrib.signal.fourier import transform_real
from tflite2onnx.operators import (
    AnySizes,
    Array,
    Builder,
    DType,
    Foldable,
    Frame,
    OperatorError,
    OutputShape,
    Shape,
    Tensor,
    Unknown,
    Value,
    View,
    axis_names,
    check_element_count,
    expect,
    ints,
    prepend_axis,
)
from tflite2onnx.sizes import Dim, Sizes, emit_sizes, is_known, take_entries

_PAIR = 2
COMPLEX = (DType.COMPLEX64, DType.COMPLEX128)


def find_complex_shape(tensor: Tensor) -> Shape:
    """Return the shape of complex numbers: without the axis of pairs, after `lower_complex`."""
    return tensor.shape if tensor.dtype in COMPLEX else tensor.shape[:-1]


def pair_axes(tensor: Tensor) -> Shape:
    """Return the axis of pairs, (2,), after `lower_complex`, and () for a complex tensor."""
    return () if tensor.dtype in COMPLEX else (_PAIR,)


class ComplexPart(AnySizes, Foldable):
    """REAL, IMAG and COMPLEX_ABS: a part, or the absolute value, of each complex number.

    Complex numbers are pairs here. The kernel computes hypot, which does not overflow. Squares of
    float32 numbers fit into float64; squares of float64 numbers overflow above 1e154, and are 0
    below 1e-162.
    """

    codes = ("REAL", "IMAG", "COMPLEX_ABS")
    operands = "T:float32|float64 [... 2] -> T"
    add_leading_axis = prepend_axis()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return (-1,)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [find_complex_shape(self.input(0))]

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: names[:-1]}, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axis = x.axis(-1)
        if self.op.code == "COMPLEX_ABS":
            squared = g.recast(x, x.dtype, DType.FLOAT64)
            length = g.reduce("ReduceL2", squared, [axis], keepdims=False)
            return g.recast(length, DType.FLOAT64, x.dtype)
        return g.Gather(x, int(self.op.code == "IMAG"), axis=axis)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        if self.op.code == "COMPLEX_ABS":
            return [np.hypot(inputs[0][..., 0], inputs[0][..., 1])]
        return [inputs[0][..., int(self.op.code == "IMAG")]]


class _FourierKind(NamedTuple):
    """The number of axes, whether input or output is real, and whether the transform is inverse."""

    axes: int
    real: bool
    inverse: bool


_KINDS = {
    f"{prefix}FFT{suffix}": _FourierKind(axes, "R" in prefix, "I" in prefix)
    for axes, suffix in ((1, ""), (2, "2D"), (3, "3D"))
    for prefix in ("", "I", "R", "IR")
}
_FLEX = "Flex"


class FourierTransform(AnySizes):
    """Complex and real Fourier transforms and their inverses, over one, two or three axes.

    Real transforms have half of the frequencies, and are cropped or zero-padded to a length. Sizes
    and lengths may be known at run time only. LiteRT's RFFT2D and IRFFT2D compute in double
    precision; for lengths that are powers of two, which they require, float32 differs little.
    """

    codes = ("IRFFT2D", "RFFT2D", *(f"{_FLEX}{name}" for name in sorted(_KINDS)))
    shape_inputs = (1,)
    operands = "T:float32|float64, ... -> T"
    add_leading_axis = prepend_axis()

    @property
    def _kind(self) -> _FourierKind:
        return _KINDS[self.op.code.removeprefix(_FLEX)]

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
        cut = len(shape) - self._kind.axes
        if cut < 0:
            raise OperatorError(
                f"{x.name} must have {self._kind.axes} or more axes{' and pairs' * pairs}, "
                f"got {list(x.shape)}"
            )
        return shape[:cut], shape[cut:]

    def check(self) -> None:
        x, (pairs, _), (lead, transformed) = self.input(0), self._pairs, self._split_shape
        if self._kind.real:
            expect(self.input(1), (self._kind.axes,), DType.INT32)
        if 0 in (*lead, *transformed) or (pairs and x.shape[-1] != _PAIR):
            non_empty = "non-empty axes" + " and pairs" * pairs
            raise OperatorError(f"{x.name} must have {non_empty}, got {list(x.shape)}")

    @cached_property
    def _lengths(self) -> Shape:
        lengths = tuple(ints(self, 1)) if self._kind.real else self._split_shape[1]
        known = [n for n in lengths if is_known(n)]
        if len(lengths) != self._kind.axes or min(known, default=1) < 1:
            raise OperatorError(
                f"its lengths must be {self._kind.axes} positive numbers, got {list(lengths)}"
            )
        if not self.op.code.startswith(_FLEX) and any(n & (n - 1) for n in known):
            raise OperatorError(f"its lengths must be two powers of 2, got {list(lengths)}")
        power = 2 if self._kind.real and self._kind.inverse else 1
        check_element_count(max(known, default=1) ** power)
        return lengths

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else range(len(self._split_shape[0]), self.input(0).rank)

    def infer_outputs(self) -> Sequence[OutputShape]:
        (lead, _), kind, (_, pairs) = self._split_shape, self._kind, self._pairs
        lengths: Sequence[Dim | Unknown] = [Unknown() for _ in range(kind.axes)]
        if not self.has_data_dependent_shape:
            *rest, last = self._lengths
            lengths = (*rest, last // 2 + 1) if kind.real and pairs else self._lengths
        return [(*lead, *lengths, *(pair_axes(self.output) if pairs else ()))]

    def emit(self, g: Builder, y: View, x: View, *lengths: View) -> Value:
        # DFT needs a leading batch axis, and a last axis of one real number or of a pair.
        (lead, sizes), kind = self._split_shape, self._kind
        batch = x.sizes[: len(lead)] or (1,)
        axes = range(len(batch), len(batch) + kind.axes - kind.real)
        known: Sequence[int | None] = [None] * kind.axes
        if kind.real:
            value = self._fit_lengths(g, x, lengths[0])
            known = known if self.has_data_dependent_shape else self._lengths
        else:
            value, symbols = x.value, x.tensor.symbols
            known = [None if len(lead) + i in symbols else n for i, n in enumerate(sizes)]
        if kind.real and not kind.inverse:
            value = self._transform_rows(g, value, batch)
        elif not lead:
            value = g.Unsqueeze(value, [0])
        for axis, size in zip(axes, known, strict=False):
            if kind.inverse:
                value = _invert_transform(g, value, axis, size, x.dtype)
            elif size != 1:
                value = g.dft(value, axis)
        if kind.real and kind.inverse:
            value = self._synthesize_real(g, value, len(batch), lengths[0], x.dtype)
        return value if lead else g.Squeeze(value, [0])

    def _fit_lengths(self, g: Builder, x: View, lengths: View) -> Value:
        """Return numbers or pairs, zero-padded to the lengths, or cropped; negative pads crop."""
        kind, first = self._kind, len(self._split_shape[0])
        wanted = g.as_int64_list(lengths)
        if kind.inverse:
            halves, ones = [1] * (kind.axes - 1) + [2], [0] * (kind.axes - 1) + [1]
            wanted = g.Add(g.Div(wanted, g.ints(halves)), g.ints(ones))
        sizes = take_entries(g, emit_sizes(g, x), range(first, first + kind.axes))
        gaps = g.Sub(wanted, sizes)
        if gaps.data is not None and not gaps.data.any():
            return x.value
        before, after = [0] * (x.rank + first), [0] * (x.rank - first - kind.axes)
        pads = g.Concat(g.ints(before), gaps, *([g.ints(after)] if after else []), axis=0)
        return g.Pad(x, pads, g.scalar(0, x.dtype))

    def _transform_rows(self, g: Builder, x: Value, batch: Sizes) -> Value:
        """Return [*batch, ..., frequencies, 2]: the transform of the last axis of real numbers."""
        if not self.has_data_dependent_shape:
            *rows, width = self._lengths
            whole = (*batch, *rows)
            many = tuple(size for size in whole if size != 1) or (1,)
            transform = transform_real(g, x, many, width, self.input(0).dtype)
            if transform is not None:
                return g.reshape(transform, (*whole, width // 2 + 1, _PAIR))
        rank = len(batch) + self._kind.axes
        new_axes = [rank] if self._split_shape[0] else [0, rank]
        return g.dft(g.Unsqueeze(x, g.ints(new_axes)), rank - 1, onesided=True)

    def _synthesize_real(
        self, g: Builder, value: Value, batch_axes: int, lengths: View, dtype: DType
    ) -> Value:
        """Return real numbers from half of the frequencies of the last axis.

        It is a product, or the real parts of an inverse transform of all frequencies, if the length
        is not known: the others are the conjugates of the second half.
        """
        axis = batch_axes + self._kind.axes - 1
        if self.has_data_dependent_shape:
            count = take_entries(g, g.as_int64_list(lengths), [self._kind.axes - 1])
            start = g.Div(g.Sub(count, [1]), [2])
            others = g.Slice(value, start, [0], [axis], [-1])
            conjugates = g.Mul(others, np.array([1, -1], dtype.numpy))
            whole = g.Concat(value, conjugates, axis=axis)
            numbers = _invert_transform(g, whole, axis, None, dtype)
            return g.Gather(numbers, 0, axis=-1)
        matrix = _make_synthesis_matrix(self._lengths[-1]).astype(dtype.numpy)
        rows = g.Reshape(value, g.ints([0] * axis + [len(matrix)]))
        return g.MatMul(rows, matrix)


def _invert_transform(g: Builder, x: Value, axis: int, size: int | None, dtype: DType) -> Value:
    """Return an inverse transform along an axis of this size, None if it is not known.

    Runtimes scale float64 by the reciprocal of the size rounded to float32, so float64 uses the
    conjugate of a forward transform.
    """
    if size == 1:
        return x
    if dtype is not DType.FLOAT64:
        return g.dft(x, axis, inverse=True)
    mirror = np.array([1.0, -1.0])
    transform = g.dft(g.Mul(x, mirror), axis)
    if size is not None:
        return g.Mul(transform, mirror / size)
    count = g.cast(take_entries(g, g.Shape(x), [axis]), dtype)
    return g.Div(g.Mul(transform, mirror), count)


def _make_synthesis_matrix(width: int) -> Array:
    """Return the matrix from frequencies to real numbers, float64 [2 * half, width]."""
    half = width // 2 + 1
    angles = 2 * np.pi / width * np.outer(np.arange(half), np.arange(width))
    twice = np.full((half, 1), 2.0)
    twice[0] = 1
    if width % 2 == 0:  # the last frequency has no conjugate, and neither has the first
        twice[-1] = 1
    parts = np.stack([twice * np.cos(angles), -twice * np.sin(angles)], 1) / width
    return parts.reshape(half * _PAIR, width)
