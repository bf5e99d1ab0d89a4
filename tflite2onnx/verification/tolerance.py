"""What two runtimes' elements of one tensor differ by, and how much of that is allowed.

An operator that both runtimes run on the same inputs is held to a number of steps, which its class
gives (`Operator.allowed_steps`). What a whole network may differ by depends on what rounding does
to it:

- A float may differ by 1e-4 of the range of its tensor. That is ten times what rounding adds up to
  in deep float32 networks, and far less than a mistake in a layout, a padding or a constant makes.
- An integer of 8 or 16 bits is a rounded real number that may fall to either side of a step.
- A network with quantized tensors rounds after each layer, and a step here may be several steps
  some layers on. Where the tensors of one are further off, noise of a tenth of the signal (20 dB)
  is right: the roundings of a correct conversion add up to less, while a mistake in a layout, a
  padding or a scale makes noise as loud as the signal.

All else has to be equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.tensor import Array

TOLERANCE = 1e-4
DECIBELS = 20.0  # of signal to noise, in quantized networks
# Integers that hold quantized numbers: every value of theirs means something.
QUANTIZED = ("int8", "uint8", "int16")
# How much further off than LiteRT's own kernels are from each other is still right.
_FACTOR = 2.0
_MORE_NOISE = 3.0  # dB
# Squares of numbers within these limits neither overflow in float32 nor vanish.
_SMALL, _LARGE = 1e-12, 1e12


class Limits(NamedTuple):
    """What is allowed: a part of the range of floats, or a `step` of what they stand for.

    `steps` are allowed of integers; if None, one of 8 and 16 bits and none of others. So many
    `decibels` of signal to noise are enough whatever else is off; inf never suffices.
    """

    part: float = TOLERANCE
    decibels: float = math.inf
    step: float = 0.0
    steps: int | None = None


_USUAL = Limits()


@dataclass(frozen=True)
class Difference:
    """How far a tensor of ONNX Runtime is from LiteRT's.

    `largest` is the largest absolute difference of two elements, inf where no number can say it;
    `allowed` is what it may be. `spread` is the range of LiteRT's elements and 0. `decibels` is the
    ratio of LiteRT's elements to the differences, as signal to noise; `enough` of them are allowed
    whatever `largest` is, and inf never suffices. `reason` tells types or shapes that differ.
    """

    name: str
    dtype: str
    largest: float
    spread: float
    allowed: float
    reason: str = ""
    decibels: float = -math.inf
    enough: float = math.inf

    @property
    def relative(self) -> float:
        """`largest` as a part of the range."""
        if self.largest and not self.spread:
            return math.inf
        return self.largest / (self.spread or 1)

    @property
    def is_within(self) -> bool:
        """True if no element is further off than is allowed of one, noise aside."""
        return self.largest <= self.allowed

    @property
    def ok(self) -> bool:
        """True if the difference is allowed."""
        loud = math.isfinite(self.largest) and self.decibels >= self.enough
        return self.is_within or loud

    @property
    def complaint(self) -> str:
        """What is wrong, in words, if it is not `ok`."""
        if self.reason:
            return self.reason
        step = f"it differs by {self.largest:.3g} where {self.allowed:.3g} is allowed"
        if math.isinf(self.enough):
            return step
        return f"{step}, with {self.decibels:.1f} dB of signal to noise where {self.enough:.1f} do"

    def worse_of(self, other: Difference) -> Difference:
        """Return what is the worse result for the same tensor."""
        return max(self, other, key=lambda d: (not d.ok, not d.is_within, d.largest))

    def allow_kernel_noise(self, kernels: Difference) -> Difference:
        """Return the same, allowed to be about as large as that of LiteRT's own kernels is."""
        if self.reason or kernels.reason:
            return self
        noise = math.inf if math.isinf(self.enough) else kernels.decibels - _MORE_NOISE
        allowed = max(self.allowed, _FACTOR * kernels.largest)
        return replace(self, allowed=allowed, enough=min(self.enough, noise))


def compare(
    name: str, want: Array, have: Array, limits: Limits = _USUAL, zero_point: int = 0
) -> Difference:
    """Compare a tensor that ONNX Runtime has made with what LiteRT wants it to be.

    Floats may differ by two of their own steps where these are coarser than the limits. NaN is
    equal to NaN, and an infinity to itself. Integers are as loud as they are far from the
    `zero_point`.
    """
    if want.dtype != have.dtype or want.shape != have.shape:
        types = [f"{a.dtype}{list(a.shape)}" for a in (want, have)]
        reason = f"{types[0]} in LiteRT, {types[1]} in ONNX Runtime"
        return Difference(name, want.dtype.name, math.inf, 0, 0, reason)
    largest, spread, decibels = _measure_difference(want, have, zero_point)
    allowed = float(want.dtype.name in QUANTIZED if limits.steps is None else limits.steps)
    if want.dtype.kind in "fc":
        smallest = float(np.finfo(np.float32).tiny)
        part = max(limits.part, 2 * float(np.finfo(want.dtype).eps))
        allowed = max(part * max(spread, smallest), limits.step)
    return Difference(
        name, want.dtype.name, largest, spread, allowed, "", decibels, limits.decibels
    )


def _measure_difference(want: Array, have: Array, zero_point: int) -> tuple[float, float, float]:
    """Return the largest difference, the range and the signal to noise."""
    if want.dtype == np.float32:
        found = _measure_floats(want, have)
        if found is not None:
            return found
    if want.dtype.name in QUANTIZED:
        return _measure_steps(want, have, zero_point)
    distance = distances(want, have)
    real = np.abs(want) if want.dtype.kind == "c" else want.astype(np.float64)
    finite = real[np.isfinite(real)]
    spread = float(finite.max(initial=0) - finite.min(initial=0))
    return float(distance.max(initial=0)), spread, _snr_db(finite, distance)


def _measure_steps(want: Array, have: Array, zero_point: int) -> tuple[float, float, float]:
    """Return the same for narrow integers, whose squares a float32 holds well enough."""
    spread = int(want.max(initial=0)) - int(want.min(initial=0))
    apart = steps(want, have)
    largest = int(apart.max(initial=0))
    if not largest:
        return 0.0, float(spread), math.inf
    signal = want.astype(np.float32) - np.float32(zero_point)
    noise = apart.astype(np.float32)
    loud, quiet = _power(signal), _power(noise)
    return float(largest), float(spread), 10 * math.log10(loud / quiet) if loud else -math.inf


def _measure_floats(want: Array, have: Array) -> tuple[float, float, float] | None:
    """Return the same for ordinary numbers in a fraction of the time, None if some are not."""
    with np.errstate(all="ignore"):
        apart = np.asarray(want - have)
        np.abs(apart, out=apart)
        largest = float(apart.max(initial=0))
    high, low = float(want.max(initial=0)), float(want.min(initial=0))
    peak = max(high, -low)
    if not (largest < _LARGE and _SMALL < peak < _LARGE and (not largest or largest > _SMALL)):
        return None
    if not largest:
        return 0.0, high - low, math.inf
    return largest, high - low, 10 * math.log10(_power(want) / _power(apart))


def _power(numbers: Array) -> float:
    """Return the sum of squares; threads of BLAS would wait for each other longer than it takes."""
    flat = numbers.reshape(-1)
    return float(np.einsum("i,i->", flat, flat))


def _snr_db(signal: Array, noise: Array) -> float:
    """Return the ratio of signal to noise: inf without noise, -inf with nothing else."""
    peak = float(max(np.abs(signal).max(initial=0), noise.max(initial=0)))
    if not np.any(noise):
        return math.inf
    if not np.any(signal) or math.isinf(peak):
        return -math.inf
    loud, quiet = (float(np.linalg.norm(each / peak)) for each in (signal, noise))
    return 20 * math.log10(loud / quiet) if quiet else math.inf


def distances(want: Array, have: Array) -> Array:
    """Return how far apart the elements are, as float64; inf where no number can say it."""
    if want.dtype.kind in "iu":
        return steps(want, have).astype(np.float64)
    if want.dtype.kind == "b":
        return np.asarray(want != have, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(want.astype(np.result_type(want, np.float64)) - have)
    same = (want == have) | (np.isnan(want) & np.isnan(have))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def steps(want: Array, have: Array) -> Array:
    """Return how far apart integers are, as unsigned integers."""
    # The difference of two signed extremes wraps around to the right unsigned number.
    apart: Array = np.maximum(want, have) - np.minimum(want, have)
    return apart.view(f"u{want.dtype.itemsize}")
