"""Unusual numbers for sizes, indices, axes, offsets and scales."""

from __future__ import annotations

import math

INTEGERS = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 16, 127, 128, 255, 256, 1000, 32767, 65535, 65536, 1 << 20, 1 << 24),
    *(2**31 - 1, 2**31, 2**32 - 1, -1, -2, -3, -4, -7, -128, -32768, -(2**31)),
)
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, math.inf, -math.inf, math.nan)
