"""The difference between the two runtimes' elements of one tensor, and the limits it must meet.

docs/verification.md lists the limits. They are the rounding errors of a correct conversion:

- 1e-4 of the range is ten times the accumulated rounding error of deep float32 networks, and far
  below the error that a wrong layout, padding or constant causes. float16 has 11 significant bits,
  and the errors of tens of layers add up to 1e-2, or to noise of 3 % of the signal (30 dB).
- Integers of 8 and 16 bits are rounded real numbers, and may differ by one step. A quantized
  network rounds after each layer, so a difference of one step may increase to several. The noise of
  rounding is less than a tenth of the signal (20 dB). The noise of a wrong layout, padding or scale
  is as large as the signal.

An output that is the same number everywhere, or has no finite element, shows nothing of the
operators that compute it: the outputs of both models would be equal even if these operators were
    wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.tensor import Array

TOLERANCE = 1e-4
# The limits for models that compute in half precision.
HALF_TOLERANCE = 1e-2
HALF_DECIBELS = 30.0
DECIBELS = 20.0  # The signal-to-noise ratio in quantized networks.
# Integer types of quantized tensors, for which every number is valid.
QUANTIZED = ("int8", "uint8", "int16")
# The allowed difference is this multiple of the difference between LiteRT's own kernels.
_FACTOR = 2.0
_MORE_NOISE = 3.0  # dB
# Squares of numbers between these limits neither overflow nor underflow in float32. No float32
# equals a limit.
_SMALL, _LARGE = 1e-12, 1e12
LARGEST = np.finfo(np.float32).max


class Limits(NamedTuple):
    """The allowed difference of a tensor.

    Floats may differ by `part` of their range, or by `step` if `step` is larger; `step` is an
    absolute difference. Integers may differ by `steps`; None allows one step for integers of 8 and
    16 bits and none for other integers. A tensor whose signal-to-noise ratio is at least `decibels`
    is accepted with any largest difference; inf disables this rule. `decibels_alone` is the same
    for an operator that runs alone.
    """

    part: float = TOLERANCE
    decibels: float = math.inf
    step: float = 0.0
    steps: int | None = None
    decibels_alone: float = math.inf


_USUAL = Limits()


@dataclass(frozen=True)
class Difference:
    """The difference between a tensor of ONNX Runtime and the same tensor of LiteRT.

    `largest` is the largest absolute difference of two elements, inf if the difference is not a
    finite number; `allowed` is its limit. `spread` is the range of LiteRT's elements, extended to
    include 0. `decibels` is the signal-to-noise ratio: LiteRT's elements are the signal, the
    differences are the noise. A ratio of at least `enough` is accepted with any `largest`; inf
    disables this rule. `reason` describes a mismatch of types or shapes. `sample` is the index of
    the sample. `widened` names the kernels of LiteRT whose differences from its plain kernels are
    the limits, "" if there are none. `kernels` names the kernels of LiteRT with which the tensor is
    compared, "" for the plain kernels. `level` is the only number that LiteRT's elements have in
    all samples, NaN if none is finite; None if they differ, or if the elements were not examined.
    """

    name: str
    dtype: str
    largest: float
    spread: float
    allowed: float
    reason: str = ""
    decibels: float = -math.inf
    enough: float = math.inf
    sample: int = 0
    widened: str = ""
    level: float | None = None
    kernels: str = ""

    @property
    def relative(self) -> float:
        """`largest` divided by the range."""
        if self.largest and not self.spread:
            return math.inf
        return self.largest / (self.spread or 1)

    @property
    def is_within(self) -> bool:
        """Whether each element is within the limit of a single element; noise is ignored."""
        return self.largest <= self.allowed

    @property
    def ok(self) -> bool:
        loud = math.isfinite(self.largest) and self.decibels >= self.enough
        return self.is_within or loud

    @property
    def is_relaxed(self) -> bool:
        """Whether the difference exceeds the usual limit of an element, but not a wider limit."""
        return self.ok and (bool(self.widened) or not self.is_within)

    @property
    def bound(self) -> str:
        """The limit that accepts the difference, in words; empty if it is not accepted."""
        if not self.ok:
            return ""
        if self.is_within:
            kernels = f", twice the difference of LiteRT's {self.widened}" if self.widened else ""
            return f"the difference is at most {self.allowed:.3g}{kernels}"
        kernels = f", 3 dB below the ratio of LiteRT's {self.widened}" if self.widened else ""
        return f"the signal-to-noise ratio is at least {self.enough:.1f} dB{kernels}"

    @property
    def severity(self) -> tuple[bool, bool, float]:
        """A key that orders the differences of several tensors: the worst is the largest."""
        excess = self.largest / self.allowed if self.allowed else math.inf
        return not self.ok, not self.is_within, excess if self.largest else 0.0

    @property
    def complaint(self) -> str:
        if self.reason:
            return self.reason
        step = f"its difference must be at most {self.allowed:.3g}, got {self.largest:.3g}"
        if math.isinf(self.enough):
            return step
        return (
            f"{step}, or its signal-to-noise ratio at least {self.enough:.1f} dB,"
            f" got {self.decibels:.1f} dB"
        )

    @property
    def comparison(self) -> str:
        """The kernels of LiteRT with which the tensor is compared; empty for the plain kernels."""
        if not self.kernels:
            return ""
        if not self.largest:
            return f"equal to LiteRT's {self.kernels}, bit for bit"
        return f"compared with LiteRT's {self.kernels}, which are the nearest"

    def select_nearer(self, other: Difference, kernels: str) -> Difference:
        """Return the difference from other kernels of LiteRT if it is accepted and smaller."""
        if not other.ok or other.severity >= self.severity:
            return self
        return replace(other, kernels=kernels, level=self.level)

    def with_sample(self, sample: int) -> Difference:
        return replace(self, sample=sample)

    def select_worse(self, other: Difference) -> Difference:
        return max(self, other, key=lambda d: (not d.ok, not d.is_within, d.largest))

    def allow_kernel_noise(self, kernels: Difference, named: str) -> Difference:
        """Return this difference with its limits widened by a difference between LiteRT's kernels.

        `named` are the kernels that differ from the plain kernels. The difference may be twice the
        difference of the kernels. In a quantized network it may instead have 3 dB more noise.
        """
        if self.reason or kernels.reason:
            return self
        noise = math.inf if math.isinf(self.enough) else kernels.decibels - _MORE_NOISE
        allowed = max(self.allowed, _FACTOR * kernels.largest)
        return replace(self, allowed=allowed, enough=min(self.enough, noise), widened=named)


def compare(
    name: str, litert: Array, onnx: Array, limits: Limits = _USUAL, zero_point: int = 0
) -> Difference:
    """Compare a tensor of ONNX Runtime (`onnx`) with the same tensor of LiteRT (`litert`).

    Floats may differ by two machine epsilons of their type, relative to the range, where two
    epsilons exceed the limits, and by as much more than a step. NaN is equal to NaN, and an
    infinity to itself. The signal of an integer is its distance from the `zero_point`.
    """
    if litert.dtype != onnx.dtype or litert.shape != onnx.shape:
        types = [f"{a.dtype}{list(a.shape)}" for a in (litert, onnx)]
        reason = f"{types[0]} in LiteRT, {types[1]} in ONNX Runtime"
        return Difference(name, litert.dtype.name, math.inf, 0, 0, reason)
    largest, spread, decibels = _measure_difference(litert, onnx, zero_point)
    allowed = float(litert.dtype.name in QUANTIZED if limits.steps is None else limits.steps)
    if litert.dtype.kind in "fc":
        span = max(spread, float(np.finfo(np.float32).tiny))
        rounding = 2 * float(np.finfo(litert.dtype).eps) * span
        allowed = max(limits.part * span, limits.step + rounding)
    return Difference(
        name, litert.dtype.name, largest, spread, allowed, "", decibels, limits.decibels
    )


def _measure_difference(litert: Array, onnx: Array, zero_point: int) -> tuple[float, float, float]:
    """Return the largest difference, the range and the signal-to-noise ratio in dB."""
    if litert.dtype == np.float32:
        result = _measure_floats(litert, onnx)
        if result is not None:
            return result
    if litert.dtype.name in QUANTIZED:
        return _measure_steps(litert, onnx, zero_point)
    distance = measure_distances(litert, onnx)
    if litert.dtype.kind == "O":
        return float(distance.max(initial=0)), 1.0, -math.inf if distance.any() else math.inf
    numbers = np.abs(litert) if litert.dtype.kind == "c" else litert.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    spread = float(finite.max(initial=0) - finite.min(initial=0))
    return float(distance.max(initial=0)), spread, _compute_snr_db(finite, distance)


def _measure_steps(litert: Array, onnx: Array, zero_point: int) -> tuple[float, float, float]:
    """Measure narrow integers, whose squares float32 represents with enough precision."""
    spread = int(litert.max(initial=0)) - int(litert.min(initial=0))
    apart = subtract_integers(litert, onnx)
    largest = int(apart.max(initial=0))
    if not largest:
        return 0.0, float(spread), math.inf
    signal = litert.astype(np.float32) - np.float32(zero_point)
    noise = apart.astype(np.float32)
    loud, quiet = _sum_squares(signal), _sum_squares(noise)
    return float(largest), float(spread), 10 * math.log10(loud / quiet) if loud else -math.inf


def _measure_floats(litert: Array, onnx: Array) -> tuple[float, float, float] | None:
    """Measure float32 tensors in a fraction of the time.

    Return None if a number is infinite or NaN, or if squares could overflow or underflow.
    """
    with np.errstate(all="ignore"):
        apart = np.asarray(litert - onnx)
        np.abs(apart, out=apart)
        largest = float(apart.max(initial=0))
    high, low = float(litert.max(initial=0)), float(litert.min(initial=0))
    peak = max(high, -low)
    if not (largest < _LARGE and _SMALL < peak < _LARGE and (not largest or largest > _SMALL)):
        return None
    if not largest:
        return 0.0, high - low, math.inf
    return largest, high - low, 10 * math.log10(_sum_squares(litert) / _sum_squares(apart))


def _sum_squares(numbers: Array) -> float:
    """Return the sum of squares; synchronising the threads of BLAS would take longer."""
    flat = numbers.reshape(-1)
    return float(np.einsum("i,i->", flat, flat))


def _compute_snr_db(signal: Array, noise: Array) -> float:
    """Return the signal-to-noise ratio: inf if there is no noise, -inf if there is no signal."""
    peak = float(max(np.abs(signal).max(initial=0), noise.max(initial=0)))
    if not np.any(noise):
        return math.inf
    if not np.any(signal) or math.isinf(peak):
        return -math.inf
    loud, quiet = (float(np.linalg.norm(amount / peak)) for amount in (signal, noise))
    return 20 * math.log10(loud / quiet) if quiet else math.inf


def measure_distances(litert: Array, onnx: Array) -> Array:
    """Return the absolute differences of elements, as float64; inf for an undefined difference.

    The largest float32 is equal to infinity: LiteRT's kernels limit their results to the range of
    float32 if there is no fused activation (CalculateActivationRange in kernel_util.h).
    """
    if litert.dtype.kind in "iu":
        return subtract_integers(litert, onnx).astype(np.float64)
    if litert.dtype.kind in "bO":
        return np.asarray(litert != onnx, np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(litert.astype(np.result_type(litert, np.float64)) - onnx)
    equal = (litert == onnx) | (np.isnan(litert) & np.isnan(onnx))
    if litert.dtype == np.float32:
        equal |= (np.abs(litert) == LARGEST) & np.isinf(onnx) & (np.sign(litert) == np.sign(onnx))
    return np.where(equal, 0.0, np.where(np.isnan(apart), np.inf, apart))


def subtract_integers(litert: Array, onnx: Array) -> Array:
    """Return the absolute differences of integers, as unsigned integers."""
    # The difference may overflow the signed type. Its bits, read as unsigned, are correct.
    with np.errstate(over="ignore"):  # numpy warns of scalars only
        apart: Array = np.maximum(litert, onnx) - np.minimum(litert, onnx)
    return apart.view(f"u{litert.dtype.itemsize}")
