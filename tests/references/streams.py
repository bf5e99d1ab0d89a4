"""TFLite Micro's kernels with state, as classes with Python lists.

An object is an operator: each call is a run of the model and returns the outputs. Outputs are None
if the kernel does not write them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tests.references.signals import MASK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.runtimes import Array

I16 = np.iinfo(np.int16)


class Delay:
    """The state of delay.cc."""

    def __init__(self, lead: int, length: int) -> None:
        self._buffers = [[0] * length for _ in range(lead)]

    def __call__(self, x: Array) -> list[Array | None]:
        made = []
        rows = x.reshape(len(self._buffers), -1).tolist()
        for buffer, samples in zip(self._buffers, rows, strict=True):
            buffer.extend(samples)
            made.append(buffer[: len(samples)])
            del buffer[: len(samples)]
        return [np.array(made, np.int16).reshape(x.shape)]


class Framer:
    """The state of framer.cc; outputs with incomplete frames are not compared."""

    def __init__(self, lead: int, size: int, step: int, *, prefill: bool) -> None:
        self._size, self._step = size, step
        self._buffers: list[list[int]] = [[0] * (prefill * (size - step)) for _ in range(lead)]

    def __call__(self, x: Array) -> list[Array | None]:
        made: list[list[int]] = []
        whole = True
        rows = x.reshape(len(self._buffers), -1).tolist()
        for buffer, samples in zip(self._buffers, rows, strict=True):
            for start, end in pairwise(range(0, len(samples) + 1, self._step)):
                buffer.extend(samples[start:end])
                if len(buffer) >= self._size:
                    made.append(buffer[: self._size])
                    del buffer[: self._step]
                else:
                    whole = False
        shape = *x.shape[:-1], -1, self._size
        return [np.array(made, np.int16).reshape(shape) if whole else None, np.array(whole)]


class Stacker:
    """The state of stacker.cc."""

    def __init__(self, left: int, right: int, step: int) -> None:
        self._left, self._frames, self._step = left, left + right + 1, step
        self._buffer: list[Array] = []
        self._begun = False

    def __call__(self, x: Array) -> list[Array | None]:
        self._buffer += [x] * (1 if self._begun else 1 + self._left)
        self._begun = True
        if len(self._buffer) < self._frames:
            return [None, np.array(False)]
        stack = np.concatenate(self._buffer[: self._frames])
        del self._buffer[: self._step]
        return [stack, np.array(True)]


class OverlapAdd:
    """The state of overlap_add.cc: frames [..., frames, samples]."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._buffer: Array | None = None

    def __call__(self, x: Array) -> list[Array | None]:
        buffer = np.zeros_like(x[..., 0, :]) if self._buffer is None else self._buffer
        made = []
        for i in range(x.shape[-2]):
            frame = x[..., i, :]
            if x.dtype == np.int16:
                total = buffer.astype(np.int32) + frame
                buffer = total.clip(I16.min, I16.max).astype(np.int16)
            else:
                buffer = buffer + frame
            made.append(buffer[..., : self._step])
            buffer = np.concatenate([buffer[..., self._step :], np.zeros_like(made[-1])], -1)
        self._buffer = buffer
        return [np.concatenate(made, -1)]


class SpectralSubtraction:
    """The state of filter_bank_spectral_subtraction.cc, for each channel."""

    def __init__(self, options: Mapping[str, int]) -> None:
        self._options = options
        self._noise = [0] * options["num_channels"]

    def __call__(self, x: Array) -> list[Array | None]:
        made = [self._subtract(i, int(number)) for i, number in enumerate(x)]
        return [np.array(made, np.uint32), np.array(self._noise, np.uint32)]

    def _subtract(self, channel: int, number: int) -> int:
        o = self._options
        which = "alternate_" if channel % 2 else ""
        signal = (number << o["smoothing_bits"]) & MASK
        mean = signal * o[f"{which}smoothing"]
        mean += self._noise[channel] * o[f"{which}one_minus_smoothing"]
        mean = (mean >> o["spectral_subtraction_bits"]) & MASK
        taken = min(mean, signal)
        self._noise[channel] = taken if o["clamping"] else mean
        least = (number * o["min_signal_remaining"] >> o["spectral_subtraction_bits"]) & MASK
        return max(signal - taken >> o["smoothing_bits"], least)


class CircularBuffer:
    """The state of circular_buffer.cc: a variable tensor, initially the zero point."""

    def __init__(self, start: Array, cycles: int = 1) -> None:
        self._buffer, self._cycles, self._left = start, cycles, cycles

    def __call__(self, x: Array) -> list[Array | None]:
        """Return the stored inputs, or None if the run ends (kTfLiteAbort)."""
        self._buffer = np.concatenate([self._buffer[:, 1:], x], 1)
        self._left -= 1
        if self._left:
            return [None]
        self._left = self._cycles
        return [self._buffer]
