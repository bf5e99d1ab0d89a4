"""Base class and integer arithmetic of the operators of TFLite Micro's audio front end.

Unsigned integers of 32 and 64 bits are computed as int64, which is large enough for real signals.
Numbers that wrap around in the kernels wrap around here. TensorFlow's AudioMicrofrontend has the
same steps from band energies to features.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tflite2onnx.operators import (
    Array,
    Builder,
    DType,
    Integers,
    Operand,
    Operator,
    OperatorError,
    Shape,
    Tensor,
    Value,
    check_element_count,
)

WORD = 32  # bits
# The table of log2(1 + x) - x in 128 steps, in units of 2 ** -16 (log.cc).
_SEGMENTS, _LOG_BITS, _LN2 = 128, 16, 45426
_HALF = 1 << (_LOG_BITS - 1)
SHIFT = 0, WORD - 1  # the limits of an option that is a shift
# Fractional bits of the signal-to-noise ratio, and of the output of gain control.
SNR_BITS, _OUTPUT_BITS = 12, 6


def read_integer(
    options: Mapping[str, Any], name: str, low: int = SHIFT[0], high: int = SHIFT[1]
) -> int:
    """Return an option; OperatorError unless it is between `low` and `high`."""
    number = int(options.get(name, 0))
    if not low <= number <= high:
        raise OperatorError(f"its {name} must be from {low} to {high}, got {number}")
    return number


class Signal(Operator):
    """An operator of the front end, which computes on stored integers along one axis.

    Attributes:
        limits: the least and the largest value of options.
    """

    quantization = Integers(in_file_types=True)
    limits: ClassVar[Mapping[str, tuple[int, int]]] = {}

    def check(self) -> None:
        for tensor in self.op.present:
            check_element_count(tensor.elements)
            if not tensor.elements:
                raise OperatorError(f"{tensor.name} must have elements, got {list(tensor.shape)}")
        for name in self.limits:
            self.read_option(name)

    def read_option(self, name: str, *limits: int) -> int:
        """Return an integer option within limits, by default those of the class."""
        return read_integer(self.options, name, *(limits or self.limits[name]))

    def make_state(self, role: str, shape: Shape, dtype: DType) -> Tensor:
        """Return a tensor for `internal_state`, whose initial value is 0."""
        return Tensor(f"{self.output.name}/{role}", shape, dtype)


def list_powers(count: int) -> Array:
    """Return the first powers of 2, int64 [count]: 1, 2, 4, ..."""
    return np.left_shift(np.int64(1), np.arange(count))


def shift_right(g: Builder, x: Value, bits: int) -> Value:
    """Return x >> bits. Div rounds towards 0, so Mod first subtracts the remainder."""
    if not bits:
        return x
    return g.Div(g.Sub(x, g.Mod(x, 1 << bits)), 1 << bits)


def count_bits(g: Builder, x: Value, most: int) -> Value:
    """Return the bit length of non-negative numbers [n]: powers of 2 up to the number."""
    reached = g.GreaterOrEqual(g.Unsqueeze(x, [1]), list_powers(most))
    return g.reduce("ReduceSum", g.cast(reached, DType.INT64), [1], keepdims=False)


def emit_square_root(g: Builder, x: Value) -> Value:
    """Return square roots, rounded to nearest, and at most 16 bits."""
    root = g.cast(g.Floor(g.Sqrt(g.cast(x, DType.FLOAT64))), DType.INT64)
    # float64 has 53 bits, so the root may be 1 too large.
    root = g.Sub(root, g.cast(g.Greater(g.Mul(root, root), x), DType.INT64))
    above = g.Add(root, 1)
    root = g.Add(root, g.cast(g.LessOrEqual(g.Mul(above, above), x), DType.INT64))
    rounds_up = g.And(
        g.Greater(g.Sub(x, g.Mul(root, root)), root),
        g.Not(g.Equal(root, 0xFFFF)),
    )
    return g.Add(root, g.cast(rounds_up, DType.INT64))


class Subtraction(NamedTuple):
    """Estimation and subtraction of noise.

    Attributes:
        bits: additional fractional bits of the estimate.
        unit: the integer that represents 1 in `rising`, `falling` and `remaining`.
        rising, falling: the weight of the signal and of the previous estimate, per channel.
        remaining: the minimum part of the signal that is kept.
    """

    bits: int
    unit: int
    rising: Array
    falling: Array
    remaining: int

    def scale_signal(self, g: Builder, x: Value) -> Value:
        """Return the signal with the fractional bits of the estimate."""
        return wrap_to_word(g, g.Mul(x, 1 << self.bits))

    def estimate(self, g: Builder, gained: Value, before: Operand) -> Value:
        """Return the next estimate, from the signal times `rising`."""
        total = g.Add(gained, g.Mul(before, self.falling))
        return wrap_to_word(g, g.Div(total, self.unit))

    def subtract_estimate(self, g: Builder, x: Value, signal: Value, estimate: Value) -> Value:
        difference = g.Sub(signal, g.min_int64(estimate, signal))
        minimum = g.Div(g.Mul(x, self.remaining), self.unit)
        rest = g.Div(difference, 1 << self.bits)
        return g.max_int64(rest, wrap_to_word(g, minimum))


def wrap_to_word(g: Builder, x: Value) -> Value:
    """Return numbers wrapped around to 32 bits."""
    return g.Mod(x, 1 << WORD)


def apply_gain(g: Builder, x: Value, noise: Value, gains: Operand, shift: int) -> Value:
    """Return numbers [n] multiplied by the gain of their noise; large results are compressed."""
    product = g.Mul(x, _compute_gain(g, noise, gains))
    ratio = wrap_to_word(g, shift_right(g, product, shift))
    small = shift_right(g, g.Mul(ratio, ratio), 2 + 2 * SNR_BITS - _OUTPUT_BITS)
    large = g.Sub(shift_right(g, ratio, SNR_BITS - _OUTPUT_BITS), 1 << _OUTPUT_BITS)
    return g.Where(g.Less(ratio, 2 << SNR_BITS), small, large)


def _compute_gain(g: Builder, noise: Value, gains: Operand) -> Value:
    """Return the gain of a noise level, from a table of one parabola per power of two."""
    interval = count_bits(g, noise, WORD)
    index = g.max_int64(g.Sub(g.Mul(interval, 4), 6), 0)
    power = g.Gather(list_powers(WORD + 1), interval)
    fraction = g.Mod(g.Div(g.Mul(noise, 1 << 11), power), 1 << 10)
    base, linear, square = (g.Gather(gains, g.Add(index, i)) for i in range(3))
    slope = g.Add(shift_right(g, g.Mul(square, fraction), 5), g.Mul(linear, 1 << 5))
    rise = shift_right(g, g.Add(g.Mul(slope, fraction), 1 << 14), 15)
    gain = g.cast(g.cast(g.Add(rise, base), DType.INT16), DType.INT64)
    small_gain = g.Gather(gains, g.min_int64(noise, 2))
    return g.Where(g.LessOrEqual(noise, 2), small_gain, gain)


def emit_logarithm(g: Builder, x: Value, scale: int) -> Value:
    """Return natural logarithms of numbers [n] times `scale`; 0 for numbers up to 1."""
    whole = g.Sub(count_bits(g, g.max_int64(x, 1), WORD), 1)
    power = g.Gather(list_powers(WORD), whole)
    fraction = g.Div(g.Mul(g.Sub(x, power), 1 << _LOG_BITS), power)
    fraction = g.max_int64(fraction, 0)
    segment = g.Div(fraction, (1 << _LOG_BITS) // _SEGMENTS)
    table = _make_log_table()
    value, next_value = (g.Gather(table[i : i + _SEGMENTS], segment) for i in (0, 1))
    remainder = g.Mod(fraction, (1 << _LOG_BITS) // _SEGMENTS)
    interpolated = shift_right(g, g.Mul(g.Sub(next_value, value), remainder), _LOG_BITS)
    high = g.Mul(whole, 1 << _LOG_BITS)
    binary = g.Add(high, g.Add(g.Add(fraction, value), interpolated))
    natural = shift_right(g, g.Add(g.Mul(binary, _LN2), _HALF), _LOG_BITS)
    scaled = g.Add(g.Mul(natural, scale), _HALF)
    result = shift_right(g, wrap_to_word(g, scaled), _LOG_BITS)
    return g.Where(g.Greater(x, 1), result, 0)


def _make_log_table() -> Array:
    """Return log2(1 + x) - x at x = i / 128, in units of 2 ** -16, as in the kernel's table."""
    x = np.arange(_SEGMENTS + 1) / _SEGMENTS
    return np.rint((np.log2(1 + x) - x) * (1 << _LOG_BITS)).astype(np.int64)
