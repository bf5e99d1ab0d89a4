"""AudioMicrofrontend (LiteRT's experimental/microfrontend), frame by frame.

Its steps are those of TFLite Micro, except for its tables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.references import signals, streams, transforms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.runtimes import Array

F = np.float32
DEFAULTS: dict[str, Any] = {
    "sample_rate": 16000, "window_size": 25, "window_step": 10, "num_channels": 32,
    "upper_band_limit": 7500.0, "lower_band_limit": 125.0, "smoothing_bits": 10,
    "even_smoothing": 0.025, "odd_smoothing": 0.06, "min_signal_remaining": 0.05,
    "enable_pcan": True, "pcan_strength": 0.95, "pcan_offset": 80.0, "gain_bits": 21,
    "enable_log": True, "scale_shift": 6, "left_context": 0, "right_context": 0,
    "frame_stride": 1, "zero_padding": False, "out_scale": 1, "out_float": False,
}  # fmt: skip


def mel(frequency: Any) -> Any:
    """Return FreqToMel."""
    return F(1127.0 * math.log1p(float(frequency) / 700.0))


class Filters:
    """The tables of filterbank_util.c: starts and widths of the channels, and their weights."""

    def __init__(self, o: Mapping[str, Any], frequencies: int) -> None:
        count = o["num_channels"] + 1
        low, high = F(o["lower_band_limit"]), F(o["upper_band_limit"])
        step = F(F(mel(high) - mel(low)) / F(count))
        width = F(0.5 * o["sample_rate"] / float(F(frequencies) - F(1)))
        index, before = int(1.5 + float(F(low / width))), mel(low)
        self.channels: list[list[tuple[int, int, int]]] = []
        for channel in range(count):
            center = F(mel(low) + F(step * F(channel + 1)))
            made = []
            while mel(F(F(index) * width)) <= center:
                weight = F(F(center - mel(F(F(index) * width))) / F(center - before))
                rising = math.floor(float(F(weight * F(4096))) + 0.5)
                made.append((index, rising, math.floor((1.0 - float(weight)) * 4096 + 0.5)))
                index += 1
            self.channels.append(made)
            before = center

    def apply(self, energy: list[int]) -> list[int]:
        """Return FilterbankAccumulateChannels."""
        made, carried = [], 0
        for channel in self.channels:
            made.append(carried + sum(weight * energy[i] for i, weight, _ in channel))
            carried = sum(weight * energy[i] for i, _, weight in channel)
        return made[1:]


def gains(o: Mapping[str, Any], correction: int) -> Array:
    """Return the table of PcanGainControlPopulateState."""

    def gain_of(x: int) -> int:
        noise = F(F(F(x) / F(1 << o["smoothing_bits"] - correction)) + F(o["pcan_offset"]))
        power = F(float(noise) ** -float(F(o["pcan_strength"])))
        value = F(F(1 << o["gain_bits"]) * power)
        return 32767 if value > 32767 else int(F(value + F(0.5)))

    table = np.zeros(4 * 33, np.int64)
    table[6], table[7] = gain_of(0), gain_of(1)
    for interval in range(2, 33):
        x = 1 << interval - 1
        y = [gain_of(x), gain_of(x + x // 2), gain_of(2 * x - (interval == 32))]
        first = 4 * (y[1] - y[0]) - (y[2] - y[0])
        table[4 * interval : 4 * interval + 3] = y[0], first, y[2] - y[0] - first
    made: Array = table[6:].astype(np.int16)
    return made


def logarithm(number: int, correction: int, shift: int) -> int:
    """Return LogScaleApply, which has a larger limit than TFLite Micro's front end."""
    if correction < 0:
        number, correction = number >> -correction, 0
    return min(signals.scaled_logarithm(number, correction, 1 << shift), 0xFFFF)


def frames(x: Array, options: Mapping[str, Any]) -> list[list[int]]:
    """Return FrontendProcessSamples for all complete frames."""
    o = {**DEFAULTS, **options}
    size, step = (o[name] * o["sample_rate"] // 1000 for name in ("window_size", "window_step"))
    length = 1 << (size - 1).bit_length()
    correction = length.bit_length() - 7
    turn = float(F(math.pi * 2.0 / size))
    window = [
        math.floor(float(F(F(0.5 - 0.5 * math.cos(turn * (i + 0.5))) * F(4096))) + 0.5)
        for i in range(size)
    ]
    filters = Filters(o, length // 2 + 1)
    rates = {
        f"{which}{name}": int(rate if name == "smoothing" else 16384 - rate)
        for which, key in (("", "even_smoothing"), ("alternate_", "odd_smoothing"))
        for rate in (int(F(o[key]) * F(16384)),)
        for name in ("smoothing", "one_minus_smoothing")
    }
    subtraction = streams.SpectralSubtraction({
        **rates, "num_channels": o["num_channels"], "smoothing_bits": o["smoothing_bits"],
        "min_signal_remaining": int(F(o["min_signal_remaining"]) * F(16384)),
        "spectral_subtraction_bits": 14, "clamping": 0,
    })  # fmt: skip
    made = []
    for start in range(0, len(x) - size + 1, step):
        samples = [int(n) * w >> 12 for n, w in zip(x[start : start + size], window, strict=True)]
        loudest = max(0, *(abs(n) for n in samples if n != -(1 << 15)))
        shift = 15 - loudest.bit_length()
        scaled = [transforms.Fixed(16).wrap(n << shift) for n in samples]
        numbers = transforms.real_transform([*scaled, *[0] * (length - size)], 16)
        energy = [a * a + b * b for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
        roots = [signals.square_root(n) >> shift for n in filters.apply(energy)]
        clean, noise = (
            [int(n) for n in part]
            for part in subtraction(np.array(roots, np.uint32))
            if part is not None
        )
        if o["enable_pcan"]:
            table, down = gains(o, correction), o["gain_bits"] - correction - 12
            clean = [signals.pcan(n, m, table, down) for n, m in zip(clean, noise, strict=True)]
        if o["enable_log"]:
            clean = [logarithm(n, correction, o["scale_shift"]) for n in clean]
        made.append([min(n, 0xFFFF) for n in clean])
    return made


def features(x: Array, options: Mapping[str, Any]) -> Array:
    """Return GenerateFeatures."""
    o = {**DEFAULTS, **options}
    dtype = np.float32 if o["out_float"] else np.int32
    values = np.array(frames(x, o)).astype(dtype)
    made = values / dtype(o["out_scale"]) if o["out_float"] else values // o["out_scale"]
    count = len(made)
    rows = []
    for anchor in range(0, count, o["frame_stride"]):
        row = []
        for place in range(anchor - o["left_context"], anchor + o["right_context"] + 1):
            outside = not 0 <= place < count
            zero = o["zero_padding"] and outside
            row.append(np.zeros_like(made[0]) if zero else made[min(max(place, 0), count - 1)])
        rows.append(np.concatenate(row))
    return np.stack(rows).astype(dtype)
