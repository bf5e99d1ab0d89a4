"""AudioSpectrogram and Mfcc, the first operators of speech models since 2018."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.operators import (
    AnySizes,
    Array,
    Builder,
    DType,
    DynamicShape,
    OperatorError,
    OutputShape,
    Value,
    View,
    check_element_count,
    integer,
)
from tflite2onnx.sizes import is_known

_SPECTRA = 3  # axes
_FEWEST_FREQUENCIES = 2
_MELS, _MEL_HERTZ = 1127, 700  # the mel scale: 1127 * log(1 + frequency / 700 Hz)
_FLOOR = 1e-12  # the minimum energy of a band before the logarithm
_MOST_SAMPLES = 1 << 24  # ONNX counts the windows in float32


class AudioSpectrogram(AnySizes):
    """AudioSpectrogram: the power or magnitude of the frequencies in windows of audio.

    The Hann windows are zero-padded to a power of two. The kernel computes in double precision.
    STFT is float64 too, because a logarithm of very small numbers may follow.
    """

    codes = ("AudioSpectrogram",)
    operands = "float32 [samples channels] -> float32"

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
        if 0 in (*x.shape, *self.infer_outputs()[0]):
            raise OperatorError(
                f"its input must be [samples, channels] with at least one window of "
                f"{self._sizes[0]} samples, got {list(x.shape)}"
            )
        if x.shape[0] > _MOST_SAMPLES:
            raise OperatorError(
                f"its input must have at most {_MOST_SAMPLES:,} samples, got {x.shape[0]:,}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        window, step, length = self._sizes
        hann = np.zeros(length)
        hann[:window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
        sound = g.cast(g.Transpose(x, perm=[1, 0]), DType.FLOAT64)
        if length > window:
            sound = g.Pad(sound, [0, 0, 0, length - window])
        signal = g.Unsqueeze(sound, [2])
        # 1 is the default of `onesided` in STFT, but ONNX's shape inference requires the attribute.
        parts = g.STFT(signal, step, hann, onesided=1)
        power = g.cast(g.reduce("ReduceSumSquare", parts, [3], keepdims=False), DType.FLOAT32)
        return power if self.options.get("magnitude_squared", False) else g.Sqrt(power)


class Mfcc(DynamicShape):
    """Mfcc: mel-frequency cepstral coefficients of power spectra.

    Magnitudes are weighted by overlapping triangles on the mel scale. The output is the cosine
    transform (DCT-II) of their logarithms.
    """

    codes = ("Mfcc",)
    operands = "float32 [channels times frequencies], int32 [1*] -> float32"

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
        channels, times, _ = self.input(0).shape
        return [(channels, times, self._counts[1])]

    def check(self) -> None:
        x, rate = self.input(0), self.input(1)
        if x.shape[2] < _FEWEST_FREQUENCIES:
            raise OperatorError(
                f"its input must have {_FEWEST_FREQUENCIES} or more frequencies, got {x.shape[2]}"
            )
        low, high = self._limits
        if not 0 <= low < high:
            raise OperatorError(
                f"lower_frequency_limit must be from 0 to below upper_frequency_limit, got {low} "
                f"and {high} Hz"
            )
        if rate.data is not None:
            self._make_bands()

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return operand != 1 and axis < _SPECTRA - 1

    def emit(self, g: Builder, y: View, x: View, rate: View) -> Value:
        if self.input(1).data is not None:
            return self._emit_coefficients(g, x, self._make_bands().astype(np.float32))
        frequencies = x.shape[2]
        hertz = g.cast(g.reshape(rate, ()), DType.FLOAT64)
        spacing = g.Div(g.Mul(hertz, np.array(0.5)), np.array(frequencies - 1.0))
        coefficients = self._emit_coefficients(g, x, self._emit_bands(g, spacing))
        # The kernel returns zeros if a frequency is above the range, and fails for a rate below 1.
        is_in_range = g.Less(np.array(self._limits[1] / frequencies), spacing)
        return g.Where(is_in_range, coefficients, g.scalar(0, DType.FLOAT32))

    def _emit_coefficients(self, g: Builder, x: View, bands: Array | Value) -> Value:
        energy = g.MatMul(g.Sqrt(x), bands)
        logarithm = g.Log(g.Max(energy, g.scalar(_FLOOR, DType.FLOAT32)))
        return g.MatMul(logarithm, self._make_cosines().astype(np.float32))

    def _make_cosines(self) -> Array:
        """Return the cosine transform, [bands, coefficients]."""
        bands, coefficients = self._counts
        angles = np.outer(np.arange(bands) + 0.5, np.arange(coefficients)) * (math.pi / bands)
        return math.sqrt(2 / bands) * np.cos(angles)

    @cached_property
    def _limits(self) -> tuple[int, int]:
        """The lowest and the highest frequency of the bands, in Hz."""
        low, high = (self.options.get(f"{e}_frequency_limit", 0) for e in ("lower", "upper"))
        return int(low), int(high)

    @cached_property
    def _centres(self) -> tuple[Array, float]:
        """The mel numbers of the bands' centres, [bands], and the distance between two centres."""
        low, high = map(_convert_to_mel, self._limits)
        edges = np.linspace(low, high, self._counts[0] + 2)
        return edges[1:-1], edges[1] - edges[0]

    def _make_bands(self) -> Array:
        """Return the weight of each frequency in each band, [frequencies, bands].

        A frequency is between the centres of two neighbouring bands, and its weights in both bands
        add up to 1.
        """
        frequencies, (low, high), rate = self.input(0).shape[2], self._limits, integer(self, 1)
        if rate <= 0:
            raise OperatorError(f"its sample rate must be positive, got {rate} Hz")
        spacing = 0.5 * rate / (frequencies - 1)
        first, last = int(1.5 + low / spacing), int(high / spacing)
        if last >= frequencies:
            raise OperatorError(
                f"upper_frequency_limit must be below {frequencies * spacing} Hz, the range of its "
                f"{frequencies} frequencies, got {high} Hz"
            )
        centres, step = self._centres
        mels = _convert_to_mel(np.arange(first, last + 1) * spacing)
        weights = np.zeros((frequencies, len(centres)))
        weights[first : last + 1] = np.maximum(1 - np.abs(mels[:, None] - centres) / step, 0)
        return weights

    def _emit_bands(self, g: Builder, spacing: Value) -> Value:
        """Return the weights of `_make_bands` for frequencies whose distance is not constant."""
        (low, high), (centres, step) = self._limits, self._centres
        indices = np.arange(float(self.input(0).shape[2]))[:, None]
        logarithms = g.Log(g.Add(g.Mul(spacing, indices / _MEL_HERTZ), np.array(1.0)))
        position = g.Mul(logarithms, np.array(_MELS / step))
        distances = g.Abs(g.Sub(position, centres / step))
        weights = g.Max(g.Sub(np.array(1.0), distances), np.array(0.0))
        # Bands begin above this bin, as in `_make_bands`.
        first = g.Add(g.Div(np.array(float(low)), spacing), np.array(0.5))
        last = g.Div(np.array(float(high)), spacing)
        is_used = g.And(g.Less(first, indices), g.Not(g.Less(last, indices)))
        return g.cast(g.Where(is_used, weights, np.array(0.0)), DType.FLOAT32)


def _convert_to_mel(hertz: Array | float) -> Array:
    return np.asarray(_MELS * np.log1p(np.asarray(hertz) / _MEL_HERTZ))
