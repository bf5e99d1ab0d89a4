"""AudioMicrofrontend: the audio front end for microcontrollers as one operator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.builder.builder import Body
from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.op.signal.frontend_steps import Subtraction, apply_gain, logarithm, square_root
from tflite2onnx.op.signal.kiss_fft import Fixed, Real, factors
from tflite2onnx.op.signal.microfrontend_tables import (
    NOISE_BITS,
    WINDOW_BITS,
    Settings,
    gains,
    make_filters,
    snr_shift,
    window,
)
from tflite2onnx.op.signal.tflm_base import (
    WORD,
    bit_length,
    emit_maximum,
    emit_minimum,
    powers,
    shift_right,
)
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType

_MOST_FEATURE = (1 << 16) - 1
_SAMPLE = 16  # bits


class AudioMicrofrontend(Operator):
    """AudioMicrofrontend: features of audio per frame, stacked with preceding and following frames.

    LiteRT outputs int32 or float32, TensorFlow uint16 in place of int32; the type is that of the
    output tensor. Only the noise estimate depends on earlier frames and becomes a Scan. All other
    steps compute all frames at once.
    """

    codes = ("AudioMicrofrontend",)
    quantization = Integers(in_file_types=True)
    operands = "int16 [samples] -> int32|float32|uint16"

    @cached_property
    def _settings(self) -> Settings:
        return Settings(self.options)

    @cached_property
    def _subtraction(self) -> tuple[int, Array, int]:
        """The additional bits of the estimate, the rate per channel, and the minimum signal."""
        s = self._settings
        even, odd = s.read_fraction("even_smoothing"), s.read_fraction("odd_smoothing")
        rates = np.where(np.arange(s.channels) % 2, odd, even).astype(np.int64)
        return (
            s.read_integer("smoothing_bits", 0, WORD - 1),
            rates,
            s.read_fraction("min_signal_remaining"),
        )

    @property
    def _frames(self) -> int:
        return (self.input(0).elements - self._settings.size) // self._settings.step + 1

    @property
    def _stacks(self) -> Array:
        """The frames of each stack, [stacks, frames]; the index after the last means zeros."""
        s, count = self._settings, self._frames
        left, right = (
            s.read_integer(f"{side}_context", 0, _MOST_FEATURE) for side in ("left", "right")
        )
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
        factors(s.length // 2)
        _ = make_filters(s), self._subtraction
        if self.options.get("enable_pcan", 0):
            _ = gains(s), snr_shift(s)
        s.read_integer("scale_shift", 0, WORD - 1)
        s.read_integer("out_scale", 1, (1 << 31) - 1)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        s = self._settings
        energy, scale_power = self._compute_energies(g, g.cast(x, DType.INT64))
        bands = g.MatMul(energy, make_filters(s))
        signal = g.Div(square_root(g, bands), scale_power)
        features = self._compute_features(g, *self._subtract_noise(g, signal))
        scale = s.read_integer("out_scale", 1, (1 << 31) - 1)
        if y.dtype is DType.FLOAT32:
            features_out = g.Div(g.cast(features, y.dtype), g.scalar(scale, y.dtype))
        else:
            features_out = g.cast(g.Div(features, g.scalar(scale, DType.INT64)), y.dtype)
        if self.options.get("zero_padding", 0):
            features_out = g.Concat(
                features_out, g.constant(np.zeros((1, s.channels), y.dtype.numpy)), axis=0
            )
        return g.reshape(g.Gather(features_out, self._stacks, axis=0), y.shape)

    def _compute_energies(self, g: Builder, x: Value) -> tuple[Value, Value]:
        """Return energies [frames, frequencies], and the power of 2 that scales their roots."""
        s = self._settings
        places = s.step * np.arange(self._frames)[:, None] + np.arange(s.size)
        frames = shift_right(g, g.Mul(g.Gather(x, places, axis=0), window(s.size)), WINDOW_BITS)
        # abs(-32768) overflows int16 in the kernel, so this value does not affect the maximum.
        loudness = g.cast(g.cast(g.Abs(frames), DType.INT16), DType.INT64)
        largest = g.reduce("ReduceMax", loudness, [1], keepdims=False)
        largest = emit_maximum(g, largest, g.scalar(0, DType.INT64))
        used_bits = bit_length(g, largest, _SAMPLE)
        shift = g.Sub(g.scalar(_SAMPLE - 1, DType.INT64), used_bits)
        power = g.Gather(powers(_SAMPLE), g.Unsqueeze(shift, g.ints([1])))
        fixed = Fixed(g, DType.INT16)
        scaled = fixed.wrap_to_type(g.Mul(frames, power))
        if s.length > s.size:
            scaled = g.Pad(scaled, g.ints([0, 0, 0, s.length - s.size]))
        parts = Real(fixed, s.length).transform(scaled)
        return g.reduce("ReduceSum", g.Mul(parts, parts), [2], keepdims=False), power

    def _subtract_noise(self, g: Builder, x: Value) -> tuple[Value, Value]:
        """Return the signal [frames, channels] without noise, and the noise estimate."""
        bits, rates, remaining = self._subtraction
        unit = 1 << NOISE_BITS
        steps = Subtraction(g, bits, unit, rates, unit - rates, remaining)
        signal = steps.signal(x)
        inner, shape = g.make_nested(), (self._settings.channels,)
        before, gained = (
            inner.annotate(Value(dtype=DType.INT64, name=name), DType.INT64, shape)
            for name in ("before", "gained")
        )
        estimate = inner.annotate(steps.estimate(inner, gained, before), DType.INT64, shape)
        output = inner.annotate(inner.Identity(estimate), DType.INT64, shape)
        body = Body("step", (before, gained), tuple(inner.nodes), (estimate, output), ())
        initial_estimate = g.constant(np.zeros(shape, np.int64))
        _, noise = g.node_outputs(
            "Scan", 2, initial_estimate, steps.weigh_signal(signal), body=body, num_scan_inputs=1
        )
        return steps.subtract_estimate(x, signal, noise), noise

    def _compute_features(self, g: Builder, x: Value, noise: Value) -> Value:
        """Return features [frames, channels]: gain control, then logarithm, if enabled."""
        s = self._settings
        value = g.reshape(x, (-1,))
        if self.options.get("enable_pcan", 0):
            value = apply_gain(g, value, g.reshape(noise, (-1,)), gains(s), snr_shift(s))
        if self.options.get("enable_log", 0):
            up, down = max(s.correction, 0), max(-s.correction, 0)
            value = shift_right(g, g.Mul(value, g.scalar(1 << up, DType.INT64)), down)
            value = g.Mod(value, g.scalar(1 << WORD, DType.INT64))
            value = logarithm(g, value, 1 << s.read_integer("scale_shift", 0, WORD - 1))
        value = emit_minimum(g, value, g.scalar(_MOST_FEATURE, DType.INT64))
        return g.reshape(value, (self._frames, s.channels))
