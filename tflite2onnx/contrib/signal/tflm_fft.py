"""The Fourier transforms of TFLite Micro's audio front end."""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.contrib.signal.kiss_fft import Fixed, RealTransform, factor_length
from tflite2onnx.contrib.signal.tflm_base import Signal
from tflite2onnx.operators import Builder, DType, OperatorError, OutputShape, Value, View

_COMPLEX = 2  # numbers
_LONGEST, _LONGEST_OF_INTEGERS = 1 << 20, 1 << 16


class _Fourier(Signal):
    """Base class of the transforms, along the last axis."""

    operands = "T:float32|int16|int32 [... samples] -> T"

    @property
    def length(self) -> int:
        """The number of real numbers; OperatorError unless the kernel supports it."""
        is_integer = self.input(0).dtype is not DType.FLOAT32
        length = self.read_option("fft_length", 2, _LONGEST_OF_INTEGERS if is_integer else _LONGEST)
        if is_integer:
            if length % 2:
                raise OperatorError(f"its fft_length must be even, got {length}")
            factor_length(length // 2)
        return length

    @property
    def frequencies(self) -> int:
        """The number of complex frequencies."""
        return self.length // 2 + 1

    @property
    def compute_type(self) -> DType:
        """The type to compute in.

        For lengths that are not powers of 2 it is float64, because float32 is inaccurate in
        runtimes (docs/runtime-faults.md).
        """
        if self.input(0).dtype is not DType.FLOAT32:
            return DType.INT64
        return DType.FLOAT64 if self.length & (self.length - 1) else DType.FLOAT32


class SignalRfft(_Fourier):
    """SignalRfft: the Fourier transform of real numbers, divided by the length for integers."""

    codes = ("SignalRfft",)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*self.input(0).shape[:-1], _COMPLEX * self.frequencies)]

    def check(self) -> None:
        super().check()
        shape, length = self.input(0).shape, self.length
        if shape[-1] > length:
            raise OperatorError(
                f"its fft_length must be at least the last size of {list(shape)}, got {length}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        length, size = self.length, x.shape[-1]
        value = g.reshape(g.recast(x, x.dtype, self.compute_type), (-1, size))
        if length > size:
            value = g.Pad(value, [0, 0, 0, length - size])
        if self.compute_type is DType.INT64:
            frequencies = RealTransform(Fixed(g, x.dtype), length).transform(value)
        else:
            frequencies = g.dft(g.Unsqueeze(value, [2]), 1, onesided=True)
        return g.reshape(g.recast(frequencies, self.compute_type, x.dtype), y.shape)


class SignalIrfft(_Fourier):
    """SignalIrfft: the inverse of SignalRfft, also divided by the length for integers."""

    codes = ("SignalIrfft",)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(*self.input(0).shape[:-1], self.length)]

    def check(self) -> None:
        super().check()
        shape, size = self.input(0).shape, _COMPLEX * self.frequencies
        if shape[-1] != size:
            raise OperatorError(
                f"the last size of its input must be {size} for an fft_length of {self.length},"
                f" got {list(shape)}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        pairs = -1, self.frequencies, _COMPLEX
        value = g.reshape(g.recast(x, x.dtype, self.compute_type), pairs)
        if self.compute_type is DType.INT64:
            samples = RealTransform(Fixed(g, x.dtype), self.length).invert_transform(value)
        else:
            mirrored = self._mirror_frequencies(g, value)
            parts = g.dft(mirrored, 1, inverse=True)
            samples = g.Gather(parts, 0, axis=2)
        return g.reshape(g.recast(samples, self.compute_type, x.dtype), y.shape)

    def _mirror_frequencies(self, g: Builder, x: Value) -> Value:
        """Return all frequencies; frequencies above the middle are conjugates of the others.

        Frequencies without a conjugate are real, so their imaginary parts are ignored.
        """
        places = np.arange(self.length)
        conjugates = (self.length - places) % self.length
        imaginary = np.sign(conjugates - places)
        signs = np.stack([np.ones(self.length), imaginary], -1).astype(self.compute_type.numpy)
        return g.Mul(g.Gather(x, np.minimum(places, conjugates), axis=1), signs)
