"""Fourier transforms of integers with a point, rounded in every step as KISS FFT (v130) does.

TFLite Micro computes with that library. A transform of n complex numbers is one of p transforms of
n / p, whose numbers are divided by p, turned, and combined by p ("butterflies"), until p is all
that is left. Each step is a few nodes over all numbers at once, exact integers in int64. What does
not fit into the elements' own type wraps around where the library stores it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value
from tflite2onnx.errors import OperatorError
from tflite2onnx.op.common.unsigned import UnsignedInt
from tflite2onnx.tensor import Array, DType

_CONJUGATE = np.array([1, -1], np.int64)


def factors(length: int) -> list[int]:
    """Return the sizes of butterflies, the last one to be combined first.

    Raises:
        OperatorError: a prime factor is greater than 5; TFLite Micro has left out what that takes.
    """
    found = []
    for factor in (4, 2, 3, 5):
        while length % factor == 0:
            found.append(factor)
            length //= factor
    if length > 1 or not found:
        raise OperatorError(
            "half of its length is not a product of 2, 3 and 5, and the kernel fails"
        )
    return found


class Fixed(NamedTuple):
    """Complex numbers [..., 2] in int64, whose parts are int16 or int32, and how to compute.

    A part of 1 is the largest number of the type.
    """

    g: Builder
    dtype: DType

    @property
    def one(self) -> int:
        """What stands for 1."""
        return (1 << self.point) - 1

    @property
    def point(self) -> int:
        """How many bits are behind the point."""
        return self.dtype.bits - 1

    def wrap_to_type(self, x: Value) -> Value:
        """Return numbers as they are stored: what does not fit wraps around."""
        return self.g.cast(self.g.cast(x, self.dtype), DType.INT64)

    def shift_right(self, x: Value, places: int) -> Value:
        """Return x >> places, as it is stored: of a shift of 64 bits the lowest are right."""
        word = UnsignedInt(self.g, self.g.cast(x, DType.UINT64), DType.UINT64)
        return self.wrap_to_type((word >> places).value)

    def multiply_fraction(self, x: Value, by: Array, more: Array | None = None) -> Value:
        """Return products with fractions, rounded half up, or with `more` in place of a half."""
        return self._round_product(self.g.Mul(x, by), self._half if more is None else more)

    @property
    def _half(self) -> Array:
        return np.array(1 << (self.point - 1), np.int64)

    def _round_product(self, x: Value, more: Array) -> Value:
        return self.shift_right(self.g.Add(x, more), self.point)

    def divide_by(self, x: Value, by: int) -> Value:
        """Return quotients, as products with a fraction."""
        return self.multiply_fraction(x, np.array(self.one // by, np.int64))

    def halve_sum(self, x: Value) -> Value:
        """Return halves, rounded down, of sums, which C computes in 32 bits."""
        return self.shift_right(self.wrap_to_type(x) if self.dtype is DType.INT32 else x, 1)

    def multiply_complex(self, x: Value, by: Array) -> Value:
        """Return products with complex fractions, rounded half up."""
        g = self.g
        real, imaginary = by[..., :1], by[..., 1:] * -_CONJUGATE
        other = g.Gather(x, g.ints([1, 0]), axis=-1)
        # ReduceSum would compute in float64, which is too short for products of int32.
        total = g.Add(g.Mul(x, real), g.Mul(other, imaginary))
        return self._round_product(total, self._half)

    def roots_of_unity(self, phases: Sequence[float]) -> Array:
        """Return e to the power of i times phases, int64 [n, 2]."""
        turns = [(math.cos(phase), math.sin(phase)) for phase in phases]
        whole = [[math.floor(0.5 + self.one * part) for part in turn] for turn in turns]
        return np.array(whole, np.int64)


class Complex(NamedTuple):
    """The transform of so many complex numbers, or its inverse; either is divided by the length."""

    fixed: Fixed
    length: int
    inverse: bool

    def transform(self, x: Operand) -> Value:
        """Return the transform of x, int64 [batch, length, 2]."""
        g, sizes, circle = self.fixed.g, factors(self.length), self._roots()
        count = len(sizes)
        places = np.arange(self.length).reshape(sizes[::-1]).transpose().reshape(-1)
        value = g.reshape(g.Gather(x, places, axis=1), (-1, *sizes, 2))
        order = list(range(count))  # of the axes between the first and the last
        for step in reversed(range(count)):
            wanted = [*(i for i in range(count) if i != step), step]
            if wanted != order:
                perm = [0, *(1 + order.index(i) for i in wanted), 1 + count]
                value = g.Transpose(value, perm=perm)
            order = wanted
            value = self.fixed.divide_by(value, sizes[step])
            if step < count - 1:
                turns = _twiddle_factors(circle, sizes, step)
                value = self.fixed.multiply_complex(value, turns.transpose(*order, count))
            value = self._run_butterflies(value, [sizes[i] for i in order], circle)
        perm = [0, *(1 + order.index(i) for i in range(count)), 1 + count]
        return g.reshape(g.Transpose(value, perm=perm), (-1, self.length, 2))

    def _roots(self) -> Array:
        once = 2 * math.pi if self.inverse else -2 * math.pi
        return self.fixed.roots_of_unity([once * i / self.length for i in range(self.length)])

    def _run_butterflies(self, x: Value, sizes: Sequence[int], circle: Array) -> Value:
        """Return what butterflies make of the last axis."""
        g, part = self.fixed.g, sizes[-1]
        value = g.reshape(x, (-1, *sizes[:-1], part * 2))
        if part in _ROUNDED:
            first, fractions, last = _ROUNDED[part]
            value = self.fixed.wrap_to_type(g.MatMul(value, _in_parts(first)))
            value = self.fixed.multiply_fraction(value, *self._fractions(part, fractions, circle))
        else:
            last = _FOURTHS[part].conj() if self.inverse else _FOURTHS[part]
        return g.reshape(self.fixed.wrap_to_type(g.MatMul(value, _in_parts(last))), (-1, *sizes, 2))

    def _fractions(self, part: int, names: Sequence[str], circle: Array) -> tuple[Array, Array]:
        """Return what butterflies multiply by, and what is added before it is rounded down."""
        point = self.fixed.point
        a, b = (circle[i * self.length // part] for i in (1, 2))
        by = {
            "1": 1 << point,
            "1/2": 1 << (point - 1),
            "a": a[0],
            "a'": a[1],
            "b": b[0],
            "b'": b[1],
        }
        down = [0 if "1" in name else 1 << (point - 1) for name in names]
        scale = np.array([by[name] for name in names], np.int64)
        return np.repeat(scale, 2), np.repeat(np.array(down, np.int64), 2)


class Real(NamedTuple):
    """The transform of so many real numbers, an even number, or its inverse.

    Neighbours are taken for complex numbers; their transform has that of even and of odd numbers
    in it, which are told apart and put together.
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
        first = g.Gather(value, g.scalar(0, DType.INT64), axis=1)
        sums = np.array([[1, 0, 1, 0], [1, 0, -1, 0]], np.int64)
        ends = self.fixed.wrap_to_type(g.MatMul(self.fixed.divide_by(first, 2), sums))
        even, odd = self._split_even_odd(value, inverse=False)
        low, high = g.Add(even, odd), g.Mul(g.Sub(even, odd), _CONJUGATE)
        parts = [g.reshape(ends, (-1, 2, 2)), *(self.fixed.halve_sum(v) for v in (low, high))]
        return self._in_sequence(parts, [0], [1])

    def inverse(self, x: Operand) -> Value:
        """Return the real numbers [batch, length] of frequencies."""
        g, half = self.fixed.g, self._half
        ends = g.Gather(g.Gather(x, g.ints([0, half]), axis=1), g.scalar(0, DType.INT64), axis=2)
        sums = np.array([[1, 1], [1, -1]], np.int64)
        first = self.fixed.divide_by(self.fixed.wrap_to_type(g.MatMul(ends, sums)), 2)
        even, odd = self._split_even_odd(x, inverse=True)
        low, high = g.Add(even, odd), g.Mul(g.Sub(even, odd), _CONJUGATE)
        parts = [g.reshape(first, (-1, 1, 2)), *(self.fixed.wrap_to_type(v) for v in (low, high))]
        value = Complex(self.fixed, half, inverse=True).transform(self._in_sequence(parts, [0], []))
        return g.reshape(value, (-1, self.length))

    def _split_even_odd(self, x: Operand, *, inverse: bool) -> tuple[Value, Value]:
        """Return what even and odd numbers make of the frequencies from 1 to the middle."""
        g, half = self.fixed.g, self._half
        below = np.arange(1, half // 2 + 1)
        both = g.Gather(x, np.stack([below, half - below]), axis=1)
        both = self.fixed.wrap_to_type(g.Mul(both, np.stack([_CONJUGATE**2, _CONJUGATE])[:, None]))
        both = self.fixed.divide_by(both, 2)
        here, there = (g.Gather(both, g.scalar(i, DType.INT64), axis=1) for i in (0, 1))
        sign = 1 if inverse else -1
        turns = self.fixed.roots_of_unity([sign * math.pi * (float(k) / half + 0.5) for k in below])
        even, odd = (self.fixed.wrap_to_type(v) for v in (g.Add(here, there), g.Sub(here, there)))
        return even, self.fixed.multiply_complex(odd, turns)

    def _in_sequence(
        self, parts: Sequence[Value], first: Sequence[int], last: Sequence[int]
    ) -> Value:
        """Return ends, the frequencies from 1 up and those from the last one down, in sequence.

        The one in the middle is among those that are counted down.
        """
        ends, middle = len(first) + len(last), self._half // 2
        up = [ends + k - 1 for k in range(1, (self._half + 1) // 2)]
        down = [ends + middle + k - 1 for k in range(middle, 0, -1)]
        line = self.fixed.g.Concat(*parts, axis=1)
        return self.fixed.g.Gather(line, self.fixed.g.ints([*first, *up, *down, *last]), axis=1)


def _twiddle_factors(circle: Array, sizes: Sequence[int], step: int) -> Array:
    """Return by how much numbers are turned before a step, along all axes (1 if alike)."""
    part, inner = sizes[step], math.prod(sizes[step + 1 :])
    stride = len(circle) // (part * inner)
    places = stride * np.outer(np.arange(part), np.arange(inner))
    return circle[places].reshape(*[1] * step, *sizes[step:], 2)


def _in_parts(matrix: Array) -> Array:
    """Return a complex matrix as one of real and imaginary parts, for rows of such: int64."""
    real, imaginary = matrix.real, matrix.imag
    parts = np.array([[real, imaginary], [-imaginary, real]])
    rows, columns = matrix.shape
    return parts.transpose(2, 0, 3, 1).reshape(2 * rows, 2 * columns).astype(np.int64)


# Butterflies of which nothing is rounded.
_FOURTHS = {
    2: np.array([[1, 1], [1, -1]]),
    4: np.array([[1, 1, 1, 1], [1, -1j, -1, 1j], [1, -1, 1, -1], [1, 1j, -1, -1j]]),
}
# And those of which some is: sums and differences, what each is multiplied by, and how that is
# added up. Halves are rounded down. a and b are the real parts of the first two roots of 1, a' and
# b' the imaginary ones.
_ROUNDED = {
    3: (
        np.array([[1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, -1]]),
        ("1", "1", "1/2", "a'"),
        np.array([[1, 1, 1], [1, 0, 0], [0, -1, -1], [0, 1j, -1j]]),
    ),
    5: (
        np.array(
            [
                [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
                [0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
                [0, 0, 1, 0, 1, 0, 1, 0, -1, 0, -1],
                [0, 1, 0, 1, 0, 1, 0, -1, 0, -1, 0],
            ]
        ),
        ("1", "1", "1", "a", "b", "b", "a", "a'", "b'", "b'", "a'"),
        np.array(
            [
                [1, 1, 1, 1, 1],
                [1, 0, 0, 0, 0],
                [1, 0, 0, 0, 0],
                [0, 1, 0, 0, 1],
                [0, 1, 0, 0, 1],
                [0, 0, 1, 1, 0],
                [0, 0, 1, 1, 0],
                [0, 1j, 0, 0, -1j],
                [0, 1j, 0, 0, -1j],
                [0, 0, 1j, -1j, 0],
                [0, 0, -1j, 1j, 0],
            ]
        ),
    ),
}
