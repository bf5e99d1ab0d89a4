"""The tables of AudioMicrofrontend: window, filters and gains, in the kernel's precision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.signal.frontend_steps import SNR_BITS
from tflite2onnx.tensor import Array

WINDOW_BITS, _FILTER_BITS, NOISE_BITS = 12, 12, 14
_MOST, _MOST_GAIN = 1 << 16, (1 << 15) - 1
_INTERVALS = 32


class Settings:
    """The options of the operator; real numbers are float32, as in the kernel.

    Attributes:
        rate: the sample rate, in Hz.
        size, step: the length of a frame and the distance to the next frame, in samples.
        length: the length of the Fourier transform, a power of 2.
        correction: the bits by which energies are scaled before the logarithm.
        channels: the number of bands.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self.rate = self.read_integer("sample_rate", 1, 1 << 20)
        self.size = self.read_integer("window_size", 1, _MOST) * self.rate // 1000
        self.step = self.read_integer("window_step", 1, _MOST) * self.rate // 1000
        if not 2 < self.size <= _MOST or not 1 <= self.step <= self.size:
            raise OperatorError(
                f"window_size must be from 3 to {_MOST} samples and window_step from 1 sample to "
                f"window_size, got {self.size} and {self.step} samples"
            )
        self.length = 1 << (self.size - 1).bit_length()
        self.correction = self.length.bit_length() - 1 - _FILTER_BITS // 2
        self.channels = self.read_integer("num_channels", 1, self.length)

    def read_integer(self, name: str, low: int, high: int) -> int:
        """Return an integer option; OperatorError unless low <= option <= high."""
        number = int(self._options.get(name, 0))
        if not low <= number <= high:
            raise OperatorError(f"its {name} must be from {low} to {high}, got {number}")
        return number

    def read_real(self, name: str, low: float = 0, high: float = math.inf) -> np.float32:
        """Return a real option; OperatorError unless low <= option <= high."""
        number = np.float32(self._options.get(name, 0))
        if not low <= number <= high:
            raise OperatorError(f"its {name} must be from {low} to {high}, got {number}")
        return number

    def read_fraction(self, name: str) -> int:
        """Return an option from 0 to 1 as a fixed-point number of the noise reduction."""
        return int(self.read_real(name, 0, 1) * np.float32(1 << NOISE_BITS))


def window(size: int) -> Array:
    """Return the Hann window, int64 with 12 fractional bits (window_util.c)."""
    turn = float(np.float32(2 * math.pi / size))
    values = [np.float32(0.5 - 0.5 * math.cos(turn * (i + 0.5))) for i in range(size)]
    whole = [math.floor(float(v * np.float32(1 << WINDOW_BITS)) + 0.5) for v in values]
    return np.array(whole, np.int64)


def _convert_to_mel(frequency: np.float32) -> np.float32:
    return np.float32(1127.0 * math.log1p(float(frequency) / 700.0))


class _Band(NamedTuple):
    start: int
    end: int
    center: np.float32


def make_filters(settings: Settings) -> Array:
    """Return the weights, int64 [frequencies, channels] (filterbank_util.c).

    A band rises from the centre of the previous band to its own, and falls to that of the next.

    Raises:
        OperatorError: the bands exceed half of the sample rate, or the table is too large.
    """
    low = settings.read_real("lower_band_limit")
    high = settings.read_real("upper_band_limit", float(np.nextafter(low, np.float32(np.inf))))
    frequencies = settings.length // 2 + 1
    spacing = np.float32(0.5 * settings.rate / float(np.float32(frequencies) - np.float32(1)))
    check_element_count(frequencies * (settings.channels + 2))
    bands = _make_bands(settings, low, high, spacing)
    if bands[-1].end >= frequencies:
        raise OperatorError(
            f"its bands must end below frequency {frequencies} of the transform, got "
            f"{bands[-1].end}; lower upper_band_limit"
        )
    matrix = np.zeros((frequencies, settings.channels + 2), np.int64)
    before = _convert_to_mel(low)
    for channel, band in enumerate(bands):
        for i in range(band.start, band.end):
            weight = (band.center - _convert_to_mel(np.float32(i) * spacing)) / (
                band.center - before
            )
            rounded = float(weight * np.float32(1 << _FILTER_BITS))
            matrix[i, channel] = math.floor(rounded + 0.5)
            falling = (1.0 - float(weight)) * (1 << _FILTER_BITS)
            matrix[i, channel + 1] = math.floor(falling + 0.5)
        before = band.center
    return matrix[:, 1:-1]


def _make_bands(
    settings: Settings, low: np.float32, high: np.float32, spacing: np.float32
) -> list[_Band]:
    """Return the frequencies of each band; only the falling half of the first is used."""
    count = settings.channels + 1
    width = (_convert_to_mel(high) - _convert_to_mel(low)) / np.float32(count)
    frequency = int(1.5 + float(low / spacing))  # skips the DC bin
    bands = []
    for channel in range(count):
        center = _convert_to_mel(low) + width * np.float32(channel + 1)
        start = frequency
        while (
            frequency < settings.length
            and _convert_to_mel(np.float32(frequency) * spacing) <= center
        ):
            frequency += 1
        bands.append(_Band(start, frequency, center))
    return bands


def gains(settings: Settings) -> Array:
    """Return the parabolas of the gain over noise, int64 [125] (pcan_gain_control_util.c)."""
    table = [_compute_gain(settings, 0), _compute_gain(settings, 1)]
    for interval in range(2, _INTERVALS + 1):
        first = 1 << (interval - 1)
        last = 2 * first - (interval == _INTERVALS)
        at_first, at_middle, at_last = (
            _compute_gain(settings, x) for x in (first, first + (first >> 1), last)
        )
        linear = 4 * (at_middle - at_first) - (at_last - at_first)
        table += [at_first, linear, at_last - at_first - linear, 0]
    return np.array(table[:-1], np.int64).astype(np.int16).astype(np.int64)


def _compute_gain(settings: Settings, x: int) -> int:
    bits = settings.read_integer("smoothing_bits", 0, 31) - settings.correction
    if not 0 <= bits <= 31:
        raise OperatorError(
            f"its smoothing_bits must be at least {settings.correction}, got "
            f"{bits + settings.correction}"
        )
    noise = np.float32(x) / np.float32(1 << bits) + settings.read_real("pcan_offset")
    strength = np.float64(settings.read_real("pcan_strength"))
    with np.errstate(all="ignore"):
        power = np.float32(np.float64(noise) ** -strength)
    gain = np.float32(1 << settings.read_integer("gain_bits", 0, 31)) * power
    return _MOST_GAIN if gain > _MOST_GAIN else int(gain + np.float32(0.5))


def snr_shift(settings: Settings) -> int:
    """Return the right shift after a product with a gain; OperatorError if it is negative."""
    shift = settings.read_integer("gain_bits", 0, 31) - settings.correction - SNR_BITS
    if shift < 0:
        raise OperatorError(
            f"its gain_bits must be at least {settings.correction + SNR_BITS}, got "
            f"{settings.read_integer('gain_bits', 0, 31)}"
        )
    return shift
