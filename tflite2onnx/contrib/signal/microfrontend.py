"""AudioMicrofrontend: the audio front end for microcontrollers as one operator.

Its window, filters and gains are tables in the kernel's precision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.contrib.signal.kiss_fft import Fixed, RealTransform, factor_length
from tflite2onnx.contrib.signal.tflm_base import (
    SNR_BITS,
    WORD,
    Subtraction,
    apply_gain,
    count_bits,
    emit_logarithm,
    emit_square_root,
    list_powers,
    read_integer,
    shift_right,
    wrap_to_word,
)
from tflite2onnx.operators import (
    Array,
    Body,
    Builder,
    DType,
    Integers,
    Operator,
    OperatorError,
    OutputShape,
    Value,
    View,
    check_element_count,
)

_MOST_FEATURE = (1 << 16) - 1
_SAMPLE = 16  # bits of a sample
WINDOW_BITS, _FILTER_BITS, NOISE_BITS = 12, 12, 14
_MOST, _MOST_GAIN = 1 << 16, (1 << 15) - 1
_INTERVALS = 32


class AudioMicrofrontend(Operator):
    """AudioMicrofrontend: features of audio per frame, stacked with preceding and following frames.

    LiteRT outputs int32 or float32, TensorFlow uint16 in place of int32; the output tensor
    determines the type. Only the noise estimate depends on earlier frames and becomes a Scan. All
    other steps compute all frames at once.
    """

    codes = ("AudioMicrofrontend",)
    quantization = Integers(in_file_types=True)
    operands = "int16 [samples] -> int32|float32|uint16"

    @cached_property
    def _settings(self) -> FrontendSettings:
        return FrontendSettings(self.options)

    @cached_property
    def _subtraction(self) -> Subtraction:
        s, unit = self._settings, 1 << NOISE_BITS
        even, odd = s.read_fraction("even_smoothing"), s.read_fraction("odd_smoothing")
        rates = np.where(np.arange(s.channels) % 2, odd, even).astype(np.int64)
        bits, remaining = s.read_integer("smoothing_bits"), s.read_fraction("min_signal_remaining")
        return Subtraction(bits, unit, rates, unit - rates, remaining)

    @property
    def _frames(self) -> int:
        return (self.input(0).elements - self._settings.size) // self._settings.step + 1

    @property
    def _stacks(self) -> Array:
        """The frames of each stack, [stacks, frames]; an index after the last is for zeros."""
        s, count = self._settings, self._frames
        left = s.read_integer("left_context", 0, _MOST_FEATURE)
        right = s.read_integer("right_context", 0, _MOST_FEATURE)
        stride = s.read_integer("frame_stride", 1, 1 << 30)
        check_element_count(-(-count // stride) * (left + 1 + right) * s.channels)
        places = np.arange(0, count, stride)[:, None] + np.arange(-left, right + 1)
        if self.options.get("zero_padding", 0):
            return np.where((places < 0) | (places >= count), count, places)
        return places.clip(0, count - 1)

    def infer_outputs(self) -> Sequence[OutputShape]:
        stacks, frames = self._stacks.shape
        return [(stacks, frames * self._settings.channels)]

    def check(self) -> None:
        s, x = self._settings, self.input(0)
        if x.elements < s.size:
            raise OperatorError(
                f"its input must have at least the {s.size} samples of a frame, got {x.elements}"
            )
        check_element_count(x.elements)
        check_element_count(self._frames * s.length)
        factor_length(s.length // 2)
        _ = make_filters(s), self._subtraction
        if self.options.get("enable_pcan", 0):
            _ = compute_gains(s), compute_gain_shift(s)
        s.read_integer("scale_shift")
        s.read_integer("out_scale", 1, (1 << 31) - 1)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        s = self._settings
        energy, scale_power = self._compute_energies(g, g.cast(x, DType.INT64))
        bands = g.MatMul(energy, make_filters(s))
        signal = g.Div(emit_square_root(g, bands), scale_power)
        features = self._compute_features(g, *self._subtract_noise(g, signal))
        scale = s.read_integer("out_scale", 1, (1 << 31) - 1)
        if y.dtype is DType.FLOAT32:
            output_features = g.Div(g.cast(features, y.dtype), g.scalar(scale, y.dtype))
        else:
            output_features = g.cast(g.Div(features, scale), y.dtype)
        if self.options.get("zero_padding", 0):
            zeros = np.zeros((1, s.channels), y.dtype.numpy)
            output_features = g.Concat(output_features, zeros, axis=0)
        return g.reshape(g.Gather(output_features, self._stacks, axis=0), y.shape)

    def _compute_energies(self, g: Builder, x: Value) -> tuple[Value, Value]:
        """Return energies [frames, frequencies], and the power of 2 that scales their roots."""
        s = self._settings
        places = s.step * np.arange(self._frames)[:, None] + np.arange(s.size)
        frames = shift_right(
            g, g.Mul(g.Gather(x, places, axis=0), compute_window(s.size)), WINDOW_BITS
        )
        # abs(-32768) overflows int16 in the kernel, so this sample does not affect the maximum.
        loudness = g.cast(g.cast(g.Abs(frames), DType.INT16), DType.INT64)
        largest = g.max_int64(g.reduce("ReduceMax", loudness, [1], keepdims=False), 0)
        shift = g.Sub(_SAMPLE - 1, count_bits(g, largest, _SAMPLE))
        power = g.Gather(list_powers(_SAMPLE), g.Unsqueeze(shift, [1]))
        arithmetic = Fixed(g, DType.INT16)
        scaled = arithmetic.wrap_to_type(g.Mul(frames, power))
        if s.length > s.size:
            scaled = g.Pad(scaled, [0, 0, 0, s.length - s.size])
        parts = RealTransform(arithmetic, s.length).transform(scaled)
        return g.reduce("ReduceSum", g.Mul(parts, parts), [2], keepdims=False), power

    def _subtract_noise(self, g: Builder, x: Value) -> tuple[Value, Value]:
        """Return the signal [frames, channels] without noise, and the noise estimate."""
        subtraction = self._subtraction
        signal = subtraction.scale_signal(g, x)
        inner, shape = g.make_nested(), (self._settings.channels,)
        before, gained = (
            inner.annotate(Value(dtype=DType.INT64, name=name), DType.INT64, shape)
            for name in ("before", "gained")
        )
        estimate = inner.annotate(subtraction.estimate(inner, gained, before), DType.INT64, shape)
        output = inner.annotate(inner.Identity(estimate), DType.INT64, shape)
        body = Body("step", (before, gained), tuple(inner.nodes), (estimate, output), ())
        operands = np.zeros(shape, np.int64), g.Mul(signal, subtraction.rising)
        _, noise = g.node_outputs("Scan", 2, *operands, body=body, num_scan_inputs=1)
        return subtraction.subtract_estimate(g, x, signal, noise), noise

    def _compute_features(self, g: Builder, x: Value, noise: Value) -> Value:
        """Return features [frames, channels]: gain control, then logarithm, if enabled."""
        s = self._settings
        value = g.reshape(x, (-1,))
        if self.options.get("enable_pcan", 0):
            value = apply_gain(
                g, value, g.reshape(noise, (-1,)), compute_gains(s), compute_gain_shift(s)
            )
        if self.options.get("enable_log", 0):
            up, down = max(s.correction, 0), max(-s.correction, 0)
            value = shift_right(g, g.Mul(value, 1 << up), down)
            value = emit_logarithm(g, wrap_to_word(g, value), 1 << s.read_integer("scale_shift"))
        value = g.min_int64(value, _MOST_FEATURE)
        return g.reshape(value, (self._frames, s.channels))


class FrontendSettings:
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

    def read_integer(self, name: str, *limits: int) -> int:
        """Return an integer option within limits; see `read_integer` of the base."""
        return read_integer(self._options, name, *limits)

    def read_real(self, name: str, low: float = 0, high: float = math.inf) -> np.float32:
        """Return a real option; OperatorError unless low <= option <= high."""
        number = np.float32(self._options.get(name, 0))
        if not low <= number <= high:
            raise OperatorError(f"its {name} must be from {low} to {high}, got {number}")
        return number

    def read_fraction(self, name: str) -> int:
        """Return an option from 0 to 1 as a fixed-point number of the noise reduction."""
        return int(self.read_real(name, 0, 1) * np.float32(1 << NOISE_BITS))


def compute_window(size: int) -> Array:
    """Return the Hann window, int64 with 12 fractional bits (window_util.c)."""
    turn = float(np.float32(2 * math.pi / size))
    values = [np.float32(0.5 - 0.5 * math.cos(turn * (i + 0.5))) for i in range(size)]
    rounded = [math.floor(float(v * np.float32(1 << WINDOW_BITS)) + 0.5) for v in values]
    return np.array(rounded, np.int64)


def _convert_to_mel(frequency: np.float32) -> np.float32:
    return np.float32(1127.0 * math.log1p(float(frequency) / 700.0))


class _Band(NamedTuple):
    start: int
    end: int
    center: np.float32


def make_filters(settings: FrontendSettings) -> Array:
    """Return the weights, int64 [frequencies, channels] (filterbank_util.c).

    The weights of a band rise from the centre of the previous band to its own centre, and fall to
    the centre of the next band.

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
    settings: FrontendSettings, low: np.float32, high: np.float32, spacing: np.float32
) -> list[_Band]:
    """Return the frequencies of each band; only the falling half of the first band is used."""
    count = settings.channels + 1
    width = (_convert_to_mel(high) - _convert_to_mel(low)) / np.float32(count)
    frequency = int(1.5 + float(low / spacing))  # + 1 skips the DC bin, + 0.5 rounds
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


def compute_gains(settings: FrontendSettings) -> Array:
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


def _compute_gain(settings: FrontendSettings, x: int) -> int:
    cut = settings.correction
    bits = settings.read_integer("smoothing_bits", max(cut, 0), WORD - 1 + min(cut, 0)) - cut
    noise = np.float32(x) / np.float32(1 << bits) + settings.read_real("pcan_offset")
    strength = np.float64(settings.read_real("pcan_strength"))
    with np.errstate(all="ignore"):
        power = np.float32(np.float64(noise) ** -strength)
    gain = np.float32(1 << settings.read_integer("gain_bits")) * power
    return _MOST_GAIN if gain > _MOST_GAIN else int(gain + np.float32(0.5))


def compute_gain_shift(settings: FrontendSettings) -> int:
    """Return the right shift after a product with a gain; OperatorError if it is negative."""
    shift = settings.correction + SNR_BITS
    return settings.read_integer("gain_bits", shift, WORD - 1) - shift
