"""The Fourier transforms of the front end of microcontrollers."""

from __future__ import annotations

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.parameters import expect
from tflite2onnx.op.signal_parts import Signal
from tflite2onnx.tensor import DType

_COMPLEX = 2  # numbers


class SignalRfft(Signal):
    """SignalRfft: the Fourier transform of real numbers, float32.

    That of integers rounds in every step, in a way that no node of ONNX's follows.
    """

    codes = ("SignalRfft",)

    @property
    def _length(self) -> int:
        return self.option("fft_length", 2, 1 << 20)

    def check(self) -> None:
        x, length = self.input(0), self._length
        if not x.rank or x.shape[-1] > length:
            message = f"a transform of the length {length} for {list(x.shape)}"
            raise OperatorError(message)
        expect(x, x.shape, DType.FLOAT32)
        expect(self.output, (*x.shape[:-1], _COMPLEX * (length // 2 + 1)), DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        length, size = self._length, x.shape[-1]
        value = g.reshape(x, (-1, size, 1))
        if length > size:
            value = g.Pad(value, g.ints([0, 0, 0, 0, length - size, 0]))
        return g.reshape(g.dft(value, 1, onesided=True), y.shape)
