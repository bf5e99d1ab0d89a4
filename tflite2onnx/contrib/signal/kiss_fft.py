"""Fixed-point Fourier transforms, rounded in every step as in KISS FFT (v130).

TFLite Micro uses KISS FFT. A transform of n complex numbers is split into p transforms of n / p
numbers. Their results are divided by p, multiplied by twiddle factors, and combined in groups of p
("butterflies"). Each step is a few nodes over all numbers, in int64. Numbers that overflow the type
of the elements wrap around where the library stores them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.operators import Array, Builder, DType, Operand, OperatorError, UnsignedInt, Value

_CONJUGATE = np.array([1, -1], np.int64)


def factor_length(length: int) -> list[int]:
    """Return the sizes of the butterflies, the size of the last step first.

    Raises:
        OperatorError: a prime factor is greater than 5, which TFLite Micro does not support.
    """
    sizes = []
    for factor in (4, 2, 3, 5):
        while length % factor == 0:
            sizes.append(factor)
            length //= factor
    if length > 1 or not sizes:
        raise OperatorError("half of its length must have no prime factors but 2, 3 and 5")
    return sizes


class Fixed(NamedTuple):
    """Arithmetic on fixed-point complex numbers: int64 [..., 2], with parts of int16 or int32.

    The largest integer of the type represents 1.
    """

    g: Builder
    dtype: DType

    @property
    def one(self) -> int:
        """The integer that represents 1."""
        return (1 << self.point) - 1

    @property
    def point(self) -> int:
        """The number of fractional bits."""
        return self.dtype.bits - 1

    def wrap_to_type(self, x: Value) -> Value:
        """Return numbers wrapped around to the range of the type."""
        return self.g.cast(self.g.cast(x, self.dtype), DType.INT64)

    def shift_right(self, x: Value, places: int) -> Value:
        """Return x >> places, wrapped; the low bits of an unsigned 64-bit shift are the same."""
        word = UnsignedInt(self.g, self.g.cast(x, DType.UINT64), DType.UINT64)
        return self.wrap_to_type((word >> places).value)

    def multiply_fraction(self, x: Value, by: Array, more: Array | None = None) -> Value:
        """Return products with fractions; see `_round_product`."""
        return self._round_product(self.g.Mul(x, by), more)

    def _round_product(self, x: Value, offset: Array | None = None) -> Value:
        """Return products, rounded half up; `offset` is added in place of a half."""
        half = np.array(1 << (self.point - 1), np.int64)
        return self.shift_right(self.g.Add(x, half if offset is None else offset), self.point)

    def divide_by(self, x: Value, by: int) -> Value:
        """Return x divided by an integer, computed as a product with a fraction."""
        return self.multiply_fraction(x, np.array(self.one // by, np.int64))

    def halve_sum(self, x: Value) -> Value:
        """Return sums halved and rounded down; C computes the sums in 32 bits."""
        return self.shift_right(self.wrap_to_type(x) if self.dtype is DType.INT32 else x, 1)

    def multiply_complex(self, x: Value, by: Array) -> Value:
        """Return products with complex fractions, rounded half up."""
        g = self.g
        real, imaginary = by[..., :1], by[..., 1:] * -_CONJUGATE
        other = g.Gather(x, [1, 0], axis=-1)
        # ReduceSum would add in float64, which cannot represent all products of int32.
        return self._round_product(g.Add(g.Mul(x, real), g.Mul(other, imaginary)))

    def compute_roots(self, phases: Sequence[float]) -> Array:
        """Return exp(i * phase) as fixed-point complex numbers, int64 [n, 2]."""
        turns = [(math.cos(phase), math.sin(phase)) for phase in phases]
        whole = [[math.floor(0.5 + self.one * part) for part in turn] for turn in turns]
        return np.array(whole, np.int64)


class Complex(NamedTuple):
    """The transform of `length` complex numbers, or its inverse; both divide by the length."""

    fixed: Fixed
    length: int
    inverse: bool

    def transform(self, x: Operand) -> Value:
        """Return the transform of x, int64 [batch, length, 2]."""
        g, sizes, circle = self.fixed.g, factor_length(self.length), self._make_roots()
        count = len(sizes)
        places = np.arange(self.length).reshape(sizes[::-1]).transpose().reshape(-1)
        value = g.reshape(g.Gather(x, places, axis=1), (-1, *sizes, 2))
        order = list(range(count))  # the sequence of the axes between the first and the last
        for step in reversed(range(count)):
            new_order = [*(i for i in range(count) if i != step), step]
            if new_order != order:
                perm = [0, *(1 + order.index(i) for i in new_order), 1 + count]
                value = g.Transpose(value, perm=perm)
            order = new_order
            value = self.fixed.divide_by(value, sizes[step])
            if step < count - 1:
                twiddles = _select_twiddle_factors(circle, sizes, step)
                value = self.fixed.multiply_complex(value, twiddles.transpose(*order, count))
            value = self._run_butterflies(value, [sizes[i] for i in order], circle)
        perm = [0, *(1 + order.index(i) for i in range(count)), 1 + count]
        return g.reshape(g.Transpose(value, perm=perm), (-1, self.length, 2))

    def _make_roots(self) -> Array:
        turn = 2 * math.pi if self.inverse else -2 * math.pi
        return self.fixed.compute_roots([turn * i / self.length for i in range(self.length)])

    def _run_butterflies(self, x: Value, sizes: Sequence[int], circle: Array) -> Value:
        g, part = self.fixed.g, sizes[-1]
        value = g.reshape(x, (-1, *sizes[:-1], part * 2))
        if part in _ROUNDED:
            first, fractions, last = _ROUNDED[part]
            value = self.fixed.wrap_to_type(g.MatMul(value, _split_complex(first)))
            by, offset = self._split_factors(part, fractions, circle)
            value = self.fixed.multiply_fraction(value, by, offset)
        else:
            last = _FOURTHS[part].conj() if self.inverse else _FOURTHS[part]
        value = self.fixed.wrap_to_type(g.MatMul(value, _split_complex(last)))
        return g.reshape(value, (-1, *sizes, 2))

    def _split_factors(self, part: int, names: Sequence[str], circle: Array) -> tuple[Array, Array]:
        """Return the factors of a butterfly, and the numbers added before rounding down."""
        point = self.fixed.point
        a, b = (circle[i * self.length // part] for i in (1, 2))
        factors_by_name = {"1": 1 << point, "1/2": 1 << (point - 1)}
        factors_by_name |= {"a": a[0], "a'": a[1], "b": b[0], "b'": b[1]}
        added = [0 if "1" in name else 1 << (point - 1) for name in names]
        scale = np.array([factors_by_name[name] for name in names], np.int64)
        return np.repeat(scale, 2), np.repeat(np.array(added, np.int64), 2)


class RealTransform(NamedTuple):
    """The transform of `length` real numbers, an even number, or its inverse.

    Pairs of adjacent numbers are transformed as complex numbers. The transforms of even and odd
    numbers are then separated by symmetry, and combined.
    """

    fixed: Fixed
    length: int

    @property
    def _half(self) -> int:
        return self.length // 2

    def transform(self, x: Operand) -> Value:
        """Return the frequencies [batch, length / 2 + 1, 2] of int64 [batch, length]."""
        g, half = self.fixed.g, self._half
        value = Complex(self.fixed, half, inverse=False).transform(g.reshape(x, (-1, half, 2)))
        first = g.Gather(value, 0, axis=1)
        sums = np.array([[1, 0, 1, 0], [1, 0, -1, 0]], np.int64)
        ends = self.fixed.wrap_to_type(g.MatMul(self.fixed.divide_by(first, 2), sums))
        even, odd = self._split_even_odd(value, inverse=False)
        low, high = g.Add(even, odd), g.Mul(g.Sub(even, odd), _CONJUGATE)
        parts = [g.reshape(ends, (-1, 2, 2)), *(self.fixed.halve_sum(v) for v in (low, high))]
        return self._join_in_sequence(parts, [0], [1])

    def invert_transform(self, x: Operand) -> Value:
        """Return the real numbers [batch, length] of frequencies."""
        g, half = self.fixed.g, self._half
        ends = g.Gather(g.Gather(x, [0, half], axis=1), 0, axis=2)
        sums = np.array([[1, 1], [1, -1]], np.int64)
        first = self.fixed.divide_by(self.fixed.wrap_to_type(g.MatMul(ends, sums)), 2)
        even, odd = self._split_even_odd(x, inverse=True)
        low, high = g.Add(even, odd), g.Mul(g.Sub(even, odd), _CONJUGATE)
        parts = [g.reshape(first, (-1, 1, 2)), *(self.fixed.wrap_to_type(v) for v in (low, high))]
        line = self._join_in_sequence(parts, [0], [])
        value = Complex(self.fixed, half, inverse=True).transform(line)
        return g.reshape(value, (-1, self.length))

    def _split_even_odd(self, x: Operand, *, inverse: bool) -> tuple[Value, Value]:
        """Return the even and odd parts of the frequencies from 1 to the middle."""
        g, half = self.fixed.g, self._half
        below = np.arange(1, half // 2 + 1)
        pairs = g.Gather(x, np.stack([below, half - below]), axis=1)
        signs = np.stack([_CONJUGATE**2, _CONJUGATE])[:, None]
        pairs = self.fixed.divide_by(self.fixed.wrap_to_type(g.Mul(pairs, signs)), 2)
        rising, falling = (g.Gather(pairs, i, axis=1) for i in (0, 1))
        turn = math.pi if inverse else -math.pi
        twiddles = self.fixed.compute_roots([turn * (float(k) / half + 0.5) for k in below])
        parts = g.Add(rising, falling), g.Sub(rising, falling)
        even, odd = (self.fixed.wrap_to_type(part) for part in parts)
        return even, self.fixed.multiply_complex(odd, twiddles)

    def _join_in_sequence(
        self, parts: Sequence[Value], first: Sequence[int], last: Sequence[int]
    ) -> Value:
        """Return parts (ends, ascending frequencies, descending frequencies) in ascending order.

        The middle frequency is in the descending part.
        """
        ends, middle = len(first) + len(last), self._half // 2
        up = [ends + k - 1 for k in range(1, (self._half + 1) // 2)]
        down = [ends + middle + k - 1 for k in range(middle, 0, -1)]
        line = self.fixed.g.Concat(*parts, axis=1)
        return self.fixed.g.Gather(line, [*first, *up, *down, *last], axis=1)


def _select_twiddle_factors(circle: Array, sizes: Sequence[int], step: int) -> Array:
    """Return the twiddle factors of a step, with an axis (size 1 if constant) per butterfly."""
    part, inner = sizes[step], math.prod(sizes[step + 1 :])
    stride = len(circle) // (part * inner)
    places = stride * np.outer(np.arange(part), np.arange(inner))
    return circle[places].reshape(*[1] * step, *sizes[step:], 2)


def _split_complex(matrix: Array) -> Array:
    """Return a complex matrix as int64, for rows of interleaved real and imaginary parts."""
    real, imaginary = matrix.real, matrix.imag
    parts = np.array([[real, imaginary], [-imaginary, real]])
    rows, columns = matrix.shape
    return parts.transpose(2, 0, 3, 1).reshape(2 * rows, 2 * columns).astype(np.int64)


def _parse_matrix(text: str) -> Array:
    """Return a matrix of 0, 1, -1, i and -i, which are written 0, +, -, i and j; rows are words."""
    numbers = {"0": 0, "+": 1, "-": -1, "i": 1j, "j": -1j}
    return np.array([[numbers[sign] for sign in row] for row in text.split()])


# The matrices of butterflies without rounding, by their number of inputs.
_FOURTHS = {2: _parse_matrix("++ +-"), 4: _parse_matrix("++++ +j-i +-+- +i-j")}
# Butterflies with rounding: the matrix of sums and differences, the factor of each row, and the
# matrix that adds the products. Halves are rounded down. a and b are the real parts of the first
# two roots of unity; a' and b' are the imaginary parts.
_ROUNDED = {
    3: (_parse_matrix("+000 0+++ 0++-"), ("1", "1", "1/2", "a'"),
        _parse_matrix("+++ +00 0-- 0ij")),
    5: (_parse_matrix("+0000000000 0+0+0+0+0+0 00+0+0+0+0+ 00+0+0+0-0- 0+0+0+0-0-0"),
        ("1", "1", "1", "a", "b", "b", "a", "a'", "b'", "b'", "a'"),
        _parse_matrix("+++++ +0000 +0000 0+00+ 0+00+ 00++0 00++0 0i00j 0i00j 00ij0 00ji0")),
}  # fmt: skip
