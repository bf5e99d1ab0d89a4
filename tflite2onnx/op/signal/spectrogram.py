"""AudioSpectrogram and Mfcc, the first operators of speech models since 2018."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, Category, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type, integer
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import is_known

_SPECTRA = 3  # axes
_FLOOR = 1e-12  # the minimum energy of a band before the logarithm
_MOST_SAMPLES = 1 << 24  # ONNX counts the windows in float32


class AudioSpectrogram(DynamicShape):
    """AudioSpectrogram: the power or magnitude of the frequencies in windows of audio.

    The Hann windows are zero-padded to a power of two. The kernel computes in double precision.
    STFT is float64 too, because a logarithm of very small numbers may follow.
    """

    codes = ("AudioSpectrogram",)
    custom = True
    dynamic_axes = "..."
    category = Category.TERMINATE

    @cached_property
    def _sizes(self) -> tuple[int, int, int]:
        """The length of a window, the step to the next, and the length of the transform."""
        window, step = (int(self.options.get(name, 0)) for name in ("window_size", "stride"))
        if window < 2 or step < 1:
            raise OperatorError(
                f"window_size must be at least 2 and stride at least 1, got {window}, {step}"
            )
        check_element_count(window)
        return window, step, 1 << (window - 1).bit_length()

    def infer_outputs(self) -> Sequence[OutputShape]:
        (window, step, length), (samples, channels) = self._sizes, self.input(0).shape
        short = is_known(samples) and samples < window
        frames = 0 if short else 1 + (samples - window) // step
        return [(channels, frames, 1 + length // 2)]

    def check(self) -> None:
        x = self.input(0)
        if x.rank != 2 or 0 in (*x.shape, *self.infer_outputs()[0]):
            raise OperatorError(
                f"its input must be [samples, channels] with at least one window of "
                f"{self._sizes[0]} samples, got {list(x.shape)}"
            )
        if x.shape[0] > _MOST_SAMPLES:
            raise OperatorError(
                f"its input must have at most {_MOST_SAMPLES:,} samples, got {x.shape[0]:,}"
            )
        expect(x, x.shape, DType.FLOAT32)
        expect_type(self.output, (DType.FLOAT32,))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        window, step, length = self._sizes
        hann = np.zeros(length)
        hann[:window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        sound = g.cast(g.Transpose(x, perm=[1, 0]), DType.FLOAT64)
        if length > window:
            sound = g.Pad(sound, g.ints([0, 0, 0, length - window]))
        signal = g.Unsqueeze(sound, g.ints([2]))
        # onesided=1 is the default of STFT, but ONNX's shape inference needs it.
        parts = g.STFT(signal, g.scalar(step, DType.INT64), hann, onesided=1)
        power = g.cast(g.reduce("ReduceSumSquare", parts, [3], keepdims=False), DType.FLOAT32)
        return power if self.options.get("magnitude_squared", False) else g.Sqrt(power)


class Mfcc(DynamicShape):
    """Mfcc: mel-frequency cepstral coefficients of power spectra.

    Magnitudes are weighted by overlapping triangles on the mel scale. The output is the cosine
    transform (DCT-II) of their logarithms.
    """

    codes = ("Mfcc",)
    custom = True
    category = Category.TERMINATE

    @cached_property
    def _counts(self) -> tuple[int, int]:
        names = "filterbank_channel_count", "dct_coefficient_count"
        bands, coefficients = (int(self.options.get(name, 0)) for name in names)
        if not 0 < coefficients <= bands:
            raise OperatorError(
                f"dct_coefficient_count must be from 1 to filterbank_channel_count, got "
                f"{coefficients} and {bands}"
            )
        check_element_count(bands * coefficients)
        check_element_count(bands * self.input(0).shape[2])
        return bands, coefficients

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0)
        if x.rank != _SPECTRA:
            raise OperatorError(
                f"its input must be [channels, times, frequencies], got {list(x.shape)}"
            )
        return [(*x.shape[:2], self._counts[1])]

    def check(self) -> None:
        x = self.input(0)
        expect(x, x.shape, DType.FLOAT32)
        expect(self.input(1), self.input(1).shape, DType.INT32)
        expect_type(self.output, (DType.FLOAT32,))
        self._make_bands()

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < _SPECTRA - 1

    def emit(self, g: Builder, y: View, x: View, rate: View) -> Value:
        energy = g.MatMul(g.Sqrt(x), self._make_bands().astype(np.float32))
        logarithm = g.Log(g.Max(energy, g.scalar(_FLOOR, DType.FLOAT32)))
        return g.MatMul(logarithm, self._make_cosines().astype(np.float32))

    def _make_cosines(self) -> Array:
        """Return the cosine transform, [bands, coefficients]."""
        bands, coefficients = self._counts
        angles = np.outer(np.arange(bands) + 0.5, np.arange(coefficients)) * (math.pi / bands)
        return math.sqrt(2 / bands) * np.cos(angles)

    def _make_bands(self) -> Array:
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
                f"its sample rate and upper_frequency_limit - lower_frequency_limit must be "
                f"positive, and its input must have 2 or more frequencies, got {rate} Hz, {low} to "
                f"{high} Hz and {frequencies}"
            )
        spacing = 0.5 * rate / (frequencies - 1)
        first, last = int(1.5 + low / spacing), int(high / spacing)
        if last >= frequencies:
            raise OperatorError(
                f"upper_frequency_limit must be below {frequencies * spacing} Hz, the range of its "
                f"{frequencies} frequencies, got {high} Hz"
            )
        edges = np.linspace(_convert_to_mel(low), _convert_to_mel(high), bands + 2)
        mels = _convert_to_mel(np.arange(first, last + 1) * spacing)
        # The position in units of edges: 1.25 is a quarter of the way from edge 1 to edge 2.
        position = (mels - edges[0]) / (edges[1] - edges[0])
        weights = np.zeros((frequencies, bands))
        distances = np.abs(position[:, None] - np.arange(1, bands + 1))
        weights[first : last + 1] = np.maximum(1 - distances, 0)
        return weights


def _convert_to_mel(hertz: Array | float) -> Array:
    return np.asarray(1127 * np.log1p(np.asarray(hertz) / 700))
