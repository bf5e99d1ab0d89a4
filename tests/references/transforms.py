"""KISS FFT (v130) with a fixed point, number by number in Python's integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Pair = tuple[int, int]


class Fixed(NamedTuple):
    """Integers of so many bits, and the library's macros for them."""

    bits: int

    @property
    def one(self) -> int:
        """SAMP_MAX."""
        return (1 << self.bits - 1) - 1

    def stored(self, number: int) -> int:
        """Return what is left of a number in a variable of the type."""
        return (number + (1 << self.bits - 1)) % (1 << self.bits) - (1 << self.bits - 1)

    def pair(self, real: int, imaginary: int) -> Pair:
        """Return two numbers that are stored."""
        return self.stored(real), self.stored(imaginary)

    def rounded(self, product: int) -> int:
        """Sround."""
        return self.stored(product + (1 << self.bits - 2) >> self.bits - 1)

    def times(self, a: Pair, b: Pair) -> Pair:
        """C_MUL."""
        return self.rounded(a[0] * b[0] - a[1] * b[1]), self.rounded(a[0] * b[1] + a[1] * b[0])

    def divided(self, a: Pair, by: int) -> Pair:
        """C_FIXDIV."""
        return self.rounded(a[0] * (self.one // by)), self.rounded(a[1] * (self.one // by))

    def turn(self, phase: float) -> Pair:
        """kf_cexp."""
        return (
            math.floor(0.5 + self.one * math.cos(phase)),
            math.floor(0.5 + self.one * math.sin(phase)),
        )

    def added(self, *pairs: Pair) -> Pair:
        """C_ADD."""
        return self.pair(sum(p[0] for p in pairs), sum(p[1] for p in pairs))

    def less(self, a: Pair, b: Pair) -> Pair:
        """C_SUB."""
        return self.pair(a[0] - b[0], a[1] - b[1])


class Transform(NamedTuple):
    """A transform of complex numbers, or its inverse."""

    fixed: Fixed
    length: int
    inverse: bool

    def of(self, x: list[Pair]) -> list[Pair]:
        """kiss_fft."""
        return self._work(x, 1)

    def _turn(self, index: int) -> Pair:
        phase = -2 * math.pi * index / self.length
        return self.fixed.turn(-phase if self.inverse else phase)

    def _work(self, x: list[Pair], stride: int) -> list[Pair]:
        radix = next(p for p in (4, 2, 3, 5) if len(x) % p == 0)
        step = len(x) // radix
        parts = [x[i::radix] for i in range(radix)]
        if step > 1:
            parts = [self._work(part, stride * radix) for part in parts]
        columns = [
            self._butterfly(
                [
                    self.fixed.times(self.fixed.divided(part[u], radix), self._turn(i * u * stride))
                    if i else self.fixed.divided(part[u], radix)
                    for i, part in enumerate(parts)
                ]
            )
            for u in range(step)
        ]  # fmt: skip
        return [column[i] for i in range(radix) for column in columns]

    def _butterfly(self, s: list[Pair]) -> list[Pair]:
        kinds: dict[int, Callable[..., list[Pair]]] = {
            2: self._two, 3: self._three, 4: self._four, 5: self._five,
        }  # fmt: skip
        return kinds[len(s)](*s)

    def _two(self, a: Pair, b: Pair) -> list[Pair]:
        return [self.fixed.added(a, b), self.fixed.less(a, b)]

    def _four(self, a: Pair, b: Pair, c: Pair, d: Pair) -> list[Pair]:
        f = self.fixed
        even, odd = f.less(a, c), f.less(b, d)
        total, both = f.added(a, c), f.added(b, d)
        down = f.pair(even[0] + odd[1], even[1] - odd[0])
        up = f.pair(even[0] - odd[1], even[1] + odd[0])
        if self.inverse:
            down, up = up, down
        return [f.added(total, both), down, f.less(total, both), up]

    def _three(self, a: Pair, b: Pair, c: Pair) -> list[Pair]:
        f, turn = self.fixed, self._turn(self.length // 3)
        both, apart = f.added(b, c), f.less(b, c)
        middle = f.pair(a[0] - (both[0] >> 1), a[1] - (both[1] >> 1))
        apart = f.rounded(apart[0] * turn[1]), f.rounded(apart[1] * turn[1])
        one = f.pair(middle[0] - apart[1], middle[1] + apart[0])
        other = f.pair(middle[0] + apart[1], middle[1] - apart[0])
        return [f.added(a, both), one, other]

    def _five(self, a: Pair, b: Pair, c: Pair, d: Pair, e: Pair) -> list[Pair]:
        f = self.fixed
        ya, yb = (self._turn(i * self.length // 5) for i in (1, 2))
        s7, s10, s8, s9 = f.added(b, e), f.less(b, e), f.added(c, d), f.less(c, d)

        def real(one: Pair, other: Pair) -> Pair:
            parts = [
                a[i] + f.rounded(s7[i] * one[0]) + f.rounded(s8[i] * other[0]) for i in (0, 1)
            ]
            return f.pair(parts[0], parts[1])

        s5, s11 = real(ya, yb), real(yb, ya)
        s6 = f.pair(
            f.rounded(s10[1] * ya[1]) + f.rounded(s9[1] * yb[1]),
            -f.rounded(s10[0] * ya[1]) - f.rounded(s9[0] * yb[1]),
        )
        s12 = f.pair(
            -f.rounded(s10[1] * yb[1]) + f.rounded(s9[1] * ya[1]),
            f.rounded(s10[0] * yb[1]) - f.rounded(s9[0] * ya[1]),
        )
        ends = f.less(s5, s6), f.added(s5, s6)
        return [f.added(a, s7, s8), ends[0], f.added(s11, s12), f.less(s11, s12), ends[1]]


def _apart(f: Fixed, x: list[Pair], k: int, half: int, sign: int) -> tuple[Pair, Pair]:
    """Return the two transforms that are in frequency k."""
    here = f.divided(x[k], 2)
    there = f.divided(f.pair(x[half - k][0], -x[half - k][1]), 2)
    turn = f.turn(sign * math.pi * (k / half + 0.5))
    return f.added(here, there), f.times(f.less(here, there), turn)


def real_transform(x: list[int], bits: int) -> list[int]:
    """kiss_fftr: as many pairs as half of the numbers, and one."""
    f, half = Fixed(bits), len(x) // 2
    parts = Transform(f, half, inverse=False).of(list(zip(x[::2], x[1::2], strict=True)))
    first = f.divided(parts[0], 2)
    made = [(0, 0)] * (half + 1)
    made[0], made[half] = f.pair(first[0] + first[1], 0), f.pair(first[0] - first[1], 0)
    for k in range(1, half // 2 + 1):
        one, other = _apart(f, parts, k, half, -1)
        sums = [one[0] + other[0], one[1] + other[1], one[0] - other[0], other[1] - one[1]]
        # C adds up in 32 bits.
        a, b, c, d = (Fixed(32).stored(total) >> 1 for total in sums)
        made[k] = f.pair(a, b)
        made[half - k] = f.pair(c, d)
    return [number for pair in made for number in pair]


def real_inverse(x: list[int], bits: int) -> list[int]:
    """kiss_fftri."""
    f, half = Fixed(bits), len(x) // 2 - 1
    pairs = list(zip(x[::2], x[1::2], strict=True))
    made = [(0, 0)] * half
    made[0] = f.divided(f.pair(pairs[0][0] + pairs[half][0], pairs[0][0] - pairs[half][0]), 2)
    for k in range(1, half // 2 + 1):
        one, other = _apart(f, pairs, k, half, 1)
        made[k] = f.added(one, other)
        made[half - k] = f.pair(one[0] - other[0], -f.less(one, other)[1])
    return [number for pair in Transform(f, half, inverse=True).of(made) for number in pair]
