"""TFLite Micro's signal kernels (signal/src), computed element by element in Python's integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tests.support.runtimes import Array

MASK = (1 << 32) - 1


def window(x: Array, weights: Array, shift: int) -> Array:
    """Return the output of window.cc."""
    raw = (x.astype(np.int64) * weights) >> shift
    made: Array = raw.clip(-(1 << 15), (1 << 15) - 1).astype(np.int16)
    return made


def auto_scale(x: Array) -> tuple[Array, int]:
    """Return the outputs of fft_auto_scale.cc."""
    largest = max(abs(int(n)) for n in x)
    bits = max(15 - largest.bit_length(), 0) if largest else 0
    return (x.astype(np.int64) << bits).astype(np.int16), bits


def rfft(x: Array, length: int) -> Array:
    """Return the float32 output of rfft.cc: real and imaginary parts alternate."""
    parts = np.fft.rfft(x, length)
    made: Array = np.stack([parts.real, parts.imag], -1).reshape(*x.shape[:-1], -1)
    return made.astype(np.float32)


def energy(x: Array, start: int, end: int) -> Array:
    """Return the output of energy.cc; elements that the kernel does not write are 0."""
    pairs = x.astype(np.int64).reshape(-1, 2)
    made = (pairs**2).sum(1)
    made[:start], made[end:] = 0, 0
    result: Array = made.astype(np.uint32)
    return result


def filter_bank(x: Array, bands: int, tables: list[Array]) -> Array:
    """Return the output of filter_bank.cc."""
    weights, unweights, starts, places, widths = tables
    made, carried = [], 0
    for band in range(bands + 1):
        total, rest = carried, 0
        for j in range(widths[band]):
            value = int(x[starts[band] + j])
            total += int(weights[places[band] + j]) * value
            rest += int(unweights[places[band] + j]) * value
        made.append(total)
        carried = rest
    return np.array(made[1:], np.uint64)


def square_root(number: int) -> int:
    """Return Sqrt64 or Sqrt32: the root, rounded to nearest if it then needs no more bits."""
    low = int(np.sqrt(np.float64(number)))
    while low * low > number:
        low -= 1
    while (low + 1) ** 2 <= number:
        low += 1
    return low + (number - low * low > low and low not in (0xFFFF, MASK))


def logarithm(number: int, correction: int, scale: int) -> int:
    """Return the output of filter_bank_log.cc."""
    return min(scaled_logarithm(number, correction, scale), 32767)


def scaled_logarithm(number: int, correction: int, scale: int) -> int:
    """Return log.cc of a 32-bit integer."""
    scaled = (number << correction) & MASK
    if scaled <= 1:
        return 0
    whole = scaled.bit_length() - 1
    part = scaled - (1 << whole)
    part = part << 16 - whole if whole < 16 else part >> whole - 16
    segment = part >> 9
    table = [round((math.log2(1 + i / 128) - i / 128) * 65536) for i in (segment, segment + 1)]
    between = (table[1] - table[0]) * (part - 512 * segment) >> 16
    binary = (whole << 16) + part + table[0] + between
    natural = (45426 * binary + 32768) >> 16
    return ((scale * natural + 32768) & MASK) >> 16


def gain(noise: int, table: Array) -> int:
    """Return WideDynamicFunction of pcan_argc_fixed.cc."""
    if noise <= 2:
        return int(table[noise])
    interval = noise.bit_length()
    base = [int(n) for n in table[4 * interval - 6 :][:3]]
    within = (noise << 11 - interval if interval < 11 else noise >> interval - 11) & 0x3FF
    rise = ((base[2] * within >> 5) + (base[1] << 5)) * within
    return base[0] + (rise + (1 << 14) >> 15)


def pcan(number: int, noise: int, table: Array, shift: int) -> int:
    """Return the output of pcan_argc_fixed.cc."""
    ratio = (number * gain(noise, table) >> shift) & MASK
    return ratio * ratio >> 20 if ratio < 2 << 12 else (ratio >> 6) - 64
