"""Sound as spectra: AudioSpectrogram and Mfcc, as speech models of 2018 and after begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, integer
from tflite2onnx.tensor import Array, DType, Shape

_SPECTRA = 3  # axes
_FLOOR = 1e-12  # of the energy in a band, below which its logarithm is not taken


class AudioSpectrogram(Operator):
    """AudioSpectrogram: the power, or the magnitude, of frequencies in windows of sound.

    The windows are those of Hann, filled up with 0 to a power of two. The kernel computes in
    double precision, and so does STFT: a logarithm may follow, of what is next to nothing.
    """

    codes = ("AudioSpectrogram",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _sizes(self) -> tuple[int, int, int]:
        """The length of a window, the step to the next, and the length that is transformed."""
        window, step = (int(self.options.get(name, 0)) for name in ("window_size", "stride"))
        if window < 2 or step < 1:
            raise OperatorError(f"windows of {window} samples at steps of {step}")
        check_element_count(window)
        return window, step, 1 << (window - 1).bit_length()

    def infer_outputs(self) -> Sequence[Shape]:
        (window, step, length), (samples, channels) = self._sizes, self.input(0).shape
        frames = 0 if samples < window else 1 + (samples - window) // step
        return [(channels, frames, 1 + length // 2)]

    def check(self) -> None:
        x = self.input(0)
        if x.rank != 2 or 0 in (*x.shape, *self.infer_outputs()[0]):
            raise OperatorError(
                f"there is no window of {self._sizes[0]} samples in {list(x.shape)}"
            )
        expect(x, x.shape, DType.FLOAT32)
        expect(self.output, self.infer_outputs()[0], DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        window, step, length = self._sizes
        hann = np.zeros(length)
        hann[:window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        sound = g.cast(g.Transpose(x, perm=[1, 0]), DType.FLOAT64)
        if length > window:
            sound = g.Pad(sound, g.ints([0, 0, 0, length - window]))
        signal = g.Unsqueeze(sound, g.ints([2]))
        # onesided is the default, but not to the inference of shapes.
        parts = g.STFT(signal, g.scalar(step, DType.INT64), hann, onesided=1)
        power = g.cast(g.reduce("ReduceSumSquare", parts, [3], keepdims=False), DType.FLOAT32)
        return power if self.options.get("magnitude_squared", False) else g.Sqrt(power)


class Mfcc(Operator):
    """Mfcc: mel-frequency cepstral coefficients of power spectra.

    Magnitudes, weighed by overlapping triangles on the mel scale; the cosine transform (DCT-II)
    of their logarithms.
    """

    codes = ("Mfcc",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _counts(self) -> tuple[int, int]:
        names = "filterbank_channel_count", "dct_coefficient_count"
        bands, kept = (int(self.options.get(name, 0)) for name in names)
        if not 0 < kept <= bands:
            raise OperatorError(f"{kept} coefficients of {bands} bands")
        check_element_count(bands * kept)
        check_element_count(bands * self.input(0).shape[2])
        return bands, kept

    def infer_outputs(self) -> Sequence[Shape]:
        x = self.input(0)
        if x.rank != _SPECTRA:
            raise OperatorError(f"{list(x.shape)} is not [channels, times, frequencies]")
        return [(*x.shape[:2], self._counts[1])]

    def check(self) -> None:
        x = self.input(0)
        expect(x, x.shape, DType.FLOAT32)
        expect(self.input(1), self.input(1).shape, DType.INT32)
        expect(self.output, self.infer_outputs()[0], DType.FLOAT32)
        self._bands()

    def emit(self, g: Builder, y: View, x: View, rate: View) -> Value:
        energy = g.MatMul(g.Sqrt(x), self._bands().astype(np.float32))
        logarithm = g.Log(g.Max(energy, g.scalar(_FLOOR, DType.FLOAT32)))
        return g.MatMul(logarithm, self._cosines().astype(np.float32))

    def _cosines(self) -> Array:
        """Return the cosine transform, [bands, coefficients]."""
        bands, kept = self._counts
        angles = np.outer(np.arange(bands) + 0.5, np.arange(kept)) * (math.pi / bands)
        return math.sqrt(2 / bands) * np.cos(angles)

    def _bands(self) -> Array:
        """Return the weight of each frequency in each band, [frequencies, bands].

        A frequency lies between the centres of two neighbouring bands, and its weights in the
        two add up to 1.
        """
        frequencies, bands = self.input(0).shape[2], self._counts[0]
        rate = integer(self, 1)
        low, high = (
            int(self.options.get(f"{end}_frequency_limit", 0)) for end in ("lower", "upper")
        )
        if rate <= 0 or frequencies < 2 or not 0 <= low < high:
            raise OperatorError(
                f"{frequencies} frequencies from {low} to {high} Hz at a rate of {rate} Hz"
            )
        spacing = 0.5 * rate / (frequencies - 1)
        first, last = int(1.5 + low / spacing), int(high / spacing)
        if last >= frequencies:
            raise OperatorError(
                f"{frequencies} frequencies, {spacing} Hz apart, do not reach {high} Hz"
            )
        edges = np.linspace(_mel(low), _mel(high), bands + 2)
        places = _mel(np.arange(first, last + 1) * spacing)
        # Where between the first edge and the last: 1.25 is a quarter of the way on from edge 1.
        between = (places - edges[0]) / (edges[1] - edges[0])
        weights = np.zeros((frequencies, bands))
        each = np.abs(between[:, None] - np.arange(1, bands + 1))
        weights[first : last + 1] = np.maximum(1 - each, 0)
        return weights


def _mel(hertz: Array | float) -> Array:
    return np.asarray(1127 * np.log1p(np.asarray(hertz) / 700))
