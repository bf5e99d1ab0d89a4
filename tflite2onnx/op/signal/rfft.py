"""RFFT2D, its inverse, and the parts of complex numbers, which are pairs: see `lower_complex`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type, ints
from tflite2onnx.op.common.runtime_shapes import BEHIND, sizes_of
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.tensor import Array, DType, Shape

_PAIR = 2


class Part(DynamicShape, Foldable):
    """REAL, IMAG and COMPLEX_ABS: a real number of each complex one, which is a pair here.

    The kernel's hypot neither overflows nor loses small numbers. The squares of floats are no
    more than doubles can hold; those of doubles above 1e154 overflow, and below 1e-162 they vanish.
    """

    codes = ("REAL", "IMAG", "COMPLEX_ABS")
    category = Category.ATTRIBUTE
    dynamic_axes = "..."

    def check(self) -> None:
        x = self.input(0)
        expect_type(x, (DType.FLOAT32, DType.FLOAT64))
        if x.shape[-1:] != (_PAIR,):
            raise OperatorError(f"{x.name} holds no complex numbers")
        expect(self.output, x.shape[:-1], x.dtype)

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)
        return [Frame({0: names, ~0: names[:-1]}, names)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        axis = x.axis(-1)
        if self.op.code == "COMPLEX_ABS":
            squared = g.recast(x, x.dtype, DType.FLOAT64)
            length = g.reduce("ReduceL2", squared, [axis], keepdims=False)
            return g.recast(length, DType.FLOAT64, x.dtype)
        return g.Gather(x, g.scalar(int(self.op.code == "IMAG"), DType.INT64), axis=axis)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        if self.op.code == "COMPLEX_ABS":
            return [np.hypot(inputs[0][..., 0], inputs[0][..., 1])]
        return [inputs[0][..., int(self.op.code == "IMAG")]]


class RealFourier(DynamicShape):
    """RFFT2D: the Fourier transform of the last two axes, cut or filled up to a length with 0.

    Of the last axis only the frequencies up to the half are kept. LiteRT computes in double
    precision, which the lengths, powers of two, make no great difference to.
    """

    codes = ("RFFT2D",)
    shape_inputs = (1,)
    category = Category.TERMINATE

    @property
    def data_dependent_axes(self) -> list[int]:
        return [self.input(0).rank - 2, self.input(0).rank - 1]

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        return _powers_of_two(ints(self, 1))

    def check(self) -> None:
        x = self.input(0)
        expect_type(self.input(1), (DType.INT32,))
        if x.rank < 2:  # the two axes
            raise OperatorError(f"{x.name} has {x.rank} axes")
        expect(x, x.shape, DType.FLOAT32)
        if self.has_data_dependent_shape:
            expect(self.input(1), (2,), DType.INT32)
            made = self.output.shape[-3:-1] if self.output.rank == x.rank + 1 else (1, 1)
        else:
            made = self._lengths[0], self._lengths[1] // 2 + 1
        expect(self.output, (*x.shape[:-2], *made, _PAIR), DType.FLOAT32)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return (
            self.has_data_dependent_shape or axis < self.input(0).rank - 2
        )  # which axes are transformed

    def emit(self, g: Builder, y: View, x: View, lengths: View) -> Value:
        # DFT wants an axis of batches in front and one of real numbers, or pairs, behind.
        batches = x.rank == 2
        value = g.Unsqueeze(
            self._fit_length(g, x, lengths), g.ints([0, 3] if batches else [x.rank])
        )
        axis = x.rank - 1 + batches
        value = g.dft(g.dft(value, axis, onesided=True), axis - 1)
        return g.Squeeze(value, g.ints([0])) if batches else value

    def _fit_length(self, g: Builder, x: View, lengths: View) -> Value:
        if self.has_data_dependent_shape:
            have = g.Slice(sizes_of(g, x), g.ints([-2]), g.ints([BEHIND]))
            more = g.Sub(g.as_int64_list(lengths), have)
            pads = g.Concat(g.ints([0] * (2 * x.rank - 2)), more, axis=0)
            return g.Pad(x, pads, g.scalar(0, DType.FLOAT32))
        missing = [want - size for want, size in zip(self._lengths, x.shape[-2:], strict=True)]
        if not any(missing):
            return x.value
        less = [0] * (2 * x.rank - 2) + missing  # less than nothing cuts off
        return g.Pad(x, g.ints(less), g.scalar(0, DType.FLOAT32))


class InverseRealFourier(Operator):
    """IRFFT2D: the real numbers of which RFFT2D has made these, cut or filled up to a length.

    Columns are transformed back as pairs; rows, of which one half is there, by a matrix that
    counts what has a counterpart in the other half twice.
    """

    codes = ("IRFFT2D",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        return _powers_of_two(ints(self, 1))

    def infer_outputs(self) -> Sequence[Shape]:
        # Of pairs, or of complex numbers before there are pairs.
        x = self.input(0)
        lead = x.shape[: -2 if x.dtype is DType.COMPLEX64 else -3]
        return [(*lead, *self._lengths)]

    def check(self) -> None:
        x, (_, width) = self.input(0), self._lengths
        if x.rank < 3 or x.shape[-1] != _PAIR:  # two axes of pairs
            raise OperatorError(f"{x.name} has {x.rank - 1} axes of complex numbers")
        check_element_count(width * width)
        expect(x, x.shape, DType.FLOAT32)
        expect(self.output, self.infer_outputs()[0], DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, _: View) -> Value:
        height, width = self._lengths
        half = width // 2 + 1
        missing = [height - x.shape[-3], half - x.shape[-2]]
        value = g.reshape(x, (-1, *x.shape[-3:]))
        if any(missing):
            value = g.Pad(value, g.ints([0, 0, 0, 0, 0, *missing, 0]))
        columns = g.dft(value, 1, inverse=True)
        rows = g.reshape(columns, (-1, half * _PAIR))
        return g.reshape(g.MatMul(rows, synthesis(width).astype(np.float32)), y.shape)


def synthesis(width: int) -> Array:
    """Return what makes real numbers of half of their frequencies, float64 [pairs, width]."""
    half = width // 2 + 1
    angles = 2 * np.pi / width * np.outer(np.arange(half), np.arange(width))
    twice = np.full((half, 1), 2.0)
    twice[0] = 1
    if width % 2 == 0:  # the last frequency is its own counterpart, as the first is
        twice[-1] = 1
    parts = np.stack([twice * np.cos(angles), -twice * np.sin(angles)], 1) / width
    return parts.reshape(half * _PAIR, width)


def _powers_of_two(lengths: Sequence[int]) -> tuple[int, int]:
    """Return two lengths; OperatorError if they are no powers of 2, as the kernels want them."""
    if len(lengths) != 2 or any(n < 1 or n & (n - 1) for n in lengths):
        raise OperatorError(f"lengths {lengths} are not two powers of 2")
    return lengths[0], lengths[1]
