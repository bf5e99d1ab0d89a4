"""RFFT2D, its inverse, and parts of complex numbers, which are pairs (see `lower_complex`)."""

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.layout import Frame, axis_names
from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Unknown, Value, View
from tflite2onnx.op.common.checks import check_element_count, ints
from tflite2onnx.op.common.fourier import transform_real
from tflite2onnx.op.common.leading_axis import prepend_axis
from tflite2onnx.op.common.runtime_shapes import AXIS_END, emit_sizes
from tflite2onnx.op.traits import AnySizes, Foldable
from tflite2onnx.tensor import Array, DType, Shape, Sizes, Tensor
from tflite2onnx.utils.dimension import Dim, is_known

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
        return g.Gather(x, g.scalar(int(self.op.code == "IMAG"), DType.INT64), axis=axis)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        if self.op.code == "COMPLEX_ABS":
            return [np.hypot(inputs[0][..., 0], inputs[0][..., 1])]
        return [inputs[0][..., int(self.op.code == "IMAG")]]


class _Transform(Operator):
    """Base of RFFT2D and its inverse: the second input lists the lengths of both axes."""

    @cached_property
    def _lengths(self) -> tuple[int, int]:
        lengths = ints(self, 1)
        # The kernels require lengths that are powers of two.
        if len(lengths) != 2 or any(is_known(n) and (n < 1 or n & (n - 1)) for n in lengths):
            raise OperatorError(f"its lengths must be two powers of 2, got {lengths}")
        return lengths[0], lengths[1]


class RealFourier(_Transform, AnySizes):
    """RFFT2D: the Fourier transform of the last two axes, cropped or zero-padded to a length.

    The last axis has only the frequencies up to half of its length. LiteRT computes in double
    precision; for lengths that are powers of two, float32 differs little.
    """

    codes = ("RFFT2D",)
    shape_inputs = (1,)
    operands = "float32 [... rows columns], int32~ [2] -> float32"
    add_leading_axis = prepend_axis()

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        return None if operand else (-2, -1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        sizes: Sequence[Dim | Unknown] = Unknown(), Unknown()
        if not self.has_data_dependent_shape:
            sizes = self._lengths[0], self._lengths[1] // 2 + 1
        return [(*self.input(0).shape[:-2], *sizes, *pair_axes(self.output))]

    def emit(self, g: Builder, y: View, x: View, lengths: View) -> Value:
        # DFT needs a leading batch axis, and a last axis of one real number or of a pair.
        lead = x.sizes[:-2] or (1,)
        value = self._transform_rows(g, self._fit_length(g, x, lengths), lead)
        if self.has_data_dependent_shape or self._lengths[0] > 1:
            value = g.dft(value, len(lead))
        return value if x.rank > 2 else g.Squeeze(value, g.ints([0]))

    def _transform_rows(self, g: Builder, x: Value, lead: Sizes) -> Value:
        """Return [*lead, rows, frequencies, 2]: the transform of the last axis."""
        if not self.has_data_dependent_shape:
            rows, width = self._lengths
            many = tuple(size for size in (*lead, rows) if size != 1) or (1,)
            transform = transform_real(g, x, many, width, DType.FLOAT32)
            if transform is not None:
                return g.reshape(transform, (*lead, rows, width // 2 + 1, _PAIR))
        rank = len(lead) + 2
        new_axes = [rank] if self.input(0).rank > 2 else [0, rank]
        return g.dft(g.Unsqueeze(x, g.ints(new_axes)), rank - 1, onesided=True)

    def _fit_length(self, g: Builder, x: View, lengths: View) -> Value:
        current = g.Slice(emit_sizes(g, x), g.ints([-2]), g.ints([AXIS_END]))
        gaps = g.Sub(g.as_int64_list(lengths), current)
        if gaps.data is not None and not gaps.data.any():
            return x.value
        pads = g.Concat(g.ints([0] * (2 * x.rank - 2)), gaps, axis=0)
        return g.Pad(x, pads, g.scalar(0, DType.FLOAT32))  # negative pads remove elements


class InverseRealFourier(_Transform):
    """IRFFT2D: the inverse of RFFT2D, cropped or zero-padded to a length.

    Columns are transformed by an inverse DFT. Rows, which have only half of the frequencies, are
    multiplied by a matrix that counts frequencies twice if they have a conjugate.
    """

    codes = ("IRFFT2D",)
    operands = "float32 [... rows columns 2], any -> float32"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*find_complex_shape(self.input(0))[:-2], *self._lengths)]

    def check(self) -> None:
        check_element_count(self._lengths[1] ** 2)

    def emit(self, g: Builder, y: View, x: View, _: View) -> Value:
        height, width = self._lengths
        half = width // 2 + 1
        gaps = [height - x.shape[-3], half - x.shape[-2]]
        value = g.reshape(x, (-1, *x.shape[-3:]))
        if any(gaps):
            value = g.Pad(value, g.ints([0, 0, 0, 0, 0, *gaps, 0]))
        columns = g.dft(value, 1, inverse=True) if height > 1 else value
        rows = g.reshape(columns, (-1, half * _PAIR))
        return g.reshape(g.MatMul(rows, make_synthesis_matrix(width).astype(np.float32)), y.shape)


def make_synthesis_matrix(width: int) -> Array:
    """Return the matrix from frequencies to real numbers, float64 [2 * half, width]."""
    half = width // 2 + 1
    angles = 2 * np.pi / width * np.outer(np.arange(half), np.arange(width))
    twice = np.full((half, 1), 2.0)
    twice[0] = 1
    if width % 2 == 0:  # the last frequency has no conjugate, and neither has the first
        twice[-1] = 1
    parts = np.stack([twice * np.cos(angles), -twice * np.sin(angles)], 1) / width
    return parts.reshape(half * _PAIR, width)
