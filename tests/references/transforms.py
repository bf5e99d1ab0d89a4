"""KISS FFT (v130) in fixed point, computed in Python's integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Pair = tuple[int, int]


class Fixed(NamedTuple):
    """Fixed-point numbers of some bits, and the library's macros for them."""

    bits: int

    @property
    def one(self) -> int:
        """Return SAMP_MAX."""
        return (1 << self.bits - 1) - 1

    def wrap(self, number: int) -> int:
        """Return an integer wrapped to the type."""
        return (number + (1 << self.bits - 1)) % (1 << self.bits) - (1 << self.bits - 1)

    def pair(self, real: int, imaginary: int) -> Pair:
        """Return two numbers wrapped to the type."""
        return self.wrap(real), self.wrap(imaginary)

    def round_product(self, product: int) -> int:
        """Return sround."""
        return self.wrap(product + (1 << self.bits - 2) >> self.bits - 1)

    def multiply(self, a: Pair, b: Pair) -> Pair:
        """Return C_MUL."""
        return self.round_product(a[0] * b[0] - a[1] * b[1]), self.round_product(
            a[0] * b[1] + a[1] * b[0]
        )

    def divide(self, a: Pair, by: int) -> Pair:
        """Return C_FIXDIV."""
        return self.round_product(a[0] * (self.one // by)), self.round_product(
            a[1] * (self.one // by)
        )

    def phase_factor(self, phase: float) -> Pair:
        """Return kf_cexp."""
        return (
            math.floor(0.5 + self.one * math.cos(phase)),
            math.floor(0.5 + self.one * math.sin(phase)),
        )

    def add(self, *pairs: Pair) -> Pair:
        """Return C_ADD."""
        return self.pair(sum(p[0] for p in pairs), sum(p[1] for p in pairs))

    def subtract(self, a: Pair, b: Pair) -> Pair:
        """Return C_SUB."""
        return self.pair(a[0] - b[0], a[1] - b[1])


class Transform(NamedTuple):
    """A transform of complex numbers, or the inverse transform."""

    fixed: Fixed
    length: int
    inverse: bool

    def transform(self, x: list[Pair]) -> list[Pair]:
        """Return kiss_fft."""
        return self._work(x, 1)

    def _twiddle_factor(self, index: int) -> Pair:
        phase = -2 * math.pi * index / self.length
        return self.fixed.phase_factor(-phase if self.inverse else phase)

    def _work(self, x: list[Pair], stride: int) -> list[Pair]:
        radix = next(p for p in (4, 2, 3, 5) if len(x) % p == 0)
        step = len(x) // radix
        parts = [x[i::radix] for i in range(radix)]
        if step > 1:
            parts = [self._work(part, stride * radix) for part in parts]
        columns = [
            self._butterfly(
                [
                    self.fixed.multiply(
                        self.fixed.divide(part[u], radix), self._twiddle_factor(i * u * stride)
                    )
                    if i
                    else self.fixed.divide(part[u], radix)
                    for i, part in enumerate(parts)
                ]
            )
            for u in range(step)
        ]
        return [column[i] for i in range(radix) for column in columns]

    def _butterfly(self, s: list[Pair]) -> list[Pair]:
        kinds: dict[int, Callable[..., list[Pair]]] = {
            2: self._two,
            3: self._three,
            4: self._four,
            5: self._five,
        }
        return kinds[len(s)](*s)

    def _two(self, a: Pair, b: Pair) -> list[Pair]:
        return [self.fixed.add(a, b), self.fixed.subtract(a, b)]

    def _four(self, a: Pair, b: Pair, c: Pair, d: Pair) -> list[Pair]:
        f = self.fixed
        even, odd = f.subtract(a, c), f.subtract(b, d)
        total, both = f.add(a, c), f.add(b, d)
        down = f.pair(even[0] + odd[1], even[1] - odd[0])
        up = f.pair(even[0] - odd[1], even[1] + odd[0])
        if self.inverse:
            down, up = up, down
        return [f.add(total, both), down, f.subtract(total, both), up]

    def _three(self, a: Pair, b: Pair, c: Pair) -> list[Pair]:
        f, turn = self.fixed, self._twiddle_factor(self.length // 3)
        both, apart = f.add(b, c), f.subtract(b, c)
        middle = f.pair(a[0] - (both[0] >> 1), a[1] - (both[1] >> 1))
        apart = f.round_product(apart[0] * turn[1]), f.round_product(apart[1] * turn[1])
        one = f.pair(middle[0] - apart[1], middle[1] + apart[0])
        other = f.pair(middle[0] + apart[1], middle[1] - apart[0])
        return [f.add(a, both), one, other]

    def _five(self, a: Pair, b: Pair, c: Pair, d: Pair, e: Pair) -> list[Pair]:
        f = self.fixed
        ya, yb = (self._twiddle_factor(i * self.length // 5) for i in (1, 2))
        s7, s10, s8, s9 = f.add(b, e), f.subtract(b, e), f.add(c, d), f.subtract(c, d)

        def real(one: Pair, other: Pair) -> Pair:
            parts = [
                a[i] + f.round_product(s7[i] * one[0]) + f.round_product(s8[i] * other[0])
                for i in (0, 1)
            ]
            return f.pair(parts[0], parts[1])

        s5, s11 = real(ya, yb), real(yb, ya)
        s6 = f.pair(
            f.round_product(s10[1] * ya[1]) + f.round_product(s9[1] * yb[1]),
            -f.round_product(s10[0] * ya[1]) - f.round_product(s9[0] * yb[1]),
        )
        s12 = f.pair(
            -f.round_product(s10[1] * yb[1]) + f.round_product(s9[1] * ya[1]),
            f.round_product(s10[0] * yb[1]) - f.round_product(s9[0] * ya[1]),
        )
        ends = f.subtract(s5, s6), f.add(s5, s6)
        return [f.add(a, s7, s8), ends[0], f.add(s11, s12), f.subtract(s11, s12), ends[1]]


def _separate(f: Fixed, x: list[Pair], k: int, half: int, sign: int) -> tuple[Pair, Pair]:
    """Return the terms of frequency k of two interleaved transforms."""
    here = f.divide(x[k], 2)
    there = f.divide(f.pair(x[half - k][0], -x[half - k][1]), 2)
    turn = f.phase_factor(sign * math.pi * (k / half + 0.5))
    return f.add(here, there), f.multiply(f.subtract(here, there), turn)


def real_transform(x: list[int], bits: int) -> list[int]:
    """Return kiss_fftr: half the length plus one pairs of real and imaginary parts."""
    f, half = Fixed(bits), len(x) // 2
    parts = Transform(f, half, inverse=False).transform(list(zip(x[::2], x[1::2], strict=True)))
    first = f.divide(parts[0], 2)
    made = [(0, 0)] * (half + 1)
    made[0], made[half] = f.pair(first[0] + first[1], 0), f.pair(first[0] - first[1], 0)
    for k in range(1, half // 2 + 1):
        one, other = _separate(f, parts, k, half, -1)
        sums = [one[0] + other[0], one[1] + other[1], one[0] - other[0], other[1] - one[1]]
        # The C code adds in 32 bits.
        a, b, c, d = (Fixed(32).wrap(total) >> 1 for total in sums)
        made[k] = f.pair(a, b)
        made[half - k] = f.pair(c, d)
    return [number for pair in made for number in pair]


def real_inverse(x: list[int], bits: int) -> list[int]:
    """Return kiss_fftri."""
    f, half = Fixed(bits), len(x) // 2 - 1
    pairs = list(zip(x[::2], x[1::2], strict=True))
    made = [(0, 0)] * half
    made[0] = f.divide(f.pair(pairs[0][0] + pairs[half][0], pairs[0][0] - pairs[half][0]), 2)
    for k in range(1, half // 2 + 1):
        one, other = _separate(f, pairs, k, half, 1)
        made[k] = f.add(one, other)
        made[half - k] = f.pair(one[0] - other[0], -f.subtract(one, other)[1])
    return [number for pair in Transform(f, half, inverse=True).transform(made) for number in pair]
