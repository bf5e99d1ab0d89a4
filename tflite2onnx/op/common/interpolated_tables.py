"""Tables between whose entries LiteRT's kernels interpolate int16 integers.

The kernels of EXP, GELU, LOG and RSQRT have the results for every 128th input (`LUTPopulate` and
`LUTLookup` in kernels/internal/common.h). Each result is corrected by half of the error in the
middle between two inputs. Where a function is steep, as LOG and RSQRT are near 0, the error is
thousands of steps: the ONNX model has the kernel's table. Where the range of the output ends, the
interpolation cuts the corner: EXP and GELU are computed by the function itself.
"""

from collections.abc import Callable

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.tensor import Array, DType

_APART = 128  # the distance of two inputs in the table
_COUNT = 512  # of the inputs that begin a part
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


def measure_table_error(function: Callable[[Array], Array], scale: float, unit: float) -> int:
    """Return the largest error of the table in steps of the output, over all int16 inputs.

    `scale` is the scale of the input, and `unit` that of the output. The function returns infinity
    where the kernel writes the largest integer, and minus infinity where it writes the smallest. A
    step more is allowed, because the function is rounded, too.
    """
    stored = np.arange(_LOW, _HIGH + 1)
    table = make_table(function, scale, unit).astype(np.int64)
    places, between = np.divmod(stored - _LOW, _APART)
    slopes = table[places + 1] - table[places]
    interpolated = table[places] + ((slopes * between + _APART // 2) >> 7)
    with np.errstate(all="ignore"):
        results = np.asarray(function(stored * scale), np.float64) / unit
    exact = np.clip(np.rint(np.nan_to_num(results, nan=0, posinf=_HIGH, neginf=_LOW)), _LOW, _HIGH)
    return int(np.abs(interpolated - exact).max()) + 1


def make_table(function: Callable[[Array], Array], scale: float, unit: float) -> Array:
    """Return the kernel's table, int16 [513], in its float32 arithmetic.

    The arguments are those of `measure_table_error`.
    """
    f = np.float32
    least, largest = f(scale) * f(_LOW), f(scale) * f(_HIGH)
    step = (largest - least) / f(_COUNT)
    per_step = f(_HIGH - _LOW + 1) / (f(unit) * f(_HIGH) - f(unit) * f(_LOW))
    inputs = least + np.arange(_COUNT + 1, dtype=f) * step

    def compute_steps(numbers: Array) -> Array:
        with np.errstate(all="ignore"):
            results = np.asarray(function(numbers), f)
            ends = np.where(results > 0, f(_HIGH) * f(unit), f(_LOW) * f(unit))
            return np.where(np.isinf(results), ends, results) * per_step

    results, middles = compute_steps(inputs), compute_steps(inputs[:-1] + step / 2)
    joined = _round((results[1:] + _round(results[:-1])) / 2)
    entries = _round(results[:-1]) - _round((joined - _round(middles)) / 2)
    last = _round(compute_steps(np.array([largest])))
    table = np.nan_to_num(np.concatenate([entries, last]), nan=0)
    return np.asarray(np.clip(table, _LOW, _HIGH), np.int16)


def _round(numbers: Array) -> Array:
    """Return numbers rounded half away from zero."""
    return np.copysign(np.floor(np.abs(numbers) + 0.5), numbers)


def interpolate_table(g: Builder, table: Value | View, x: View) -> Value:
    """Return the kernel's results for int16 integers, from a table [513] of int16.

    Results between two entries are rounded half up.
    """
    index = g.cast(x, DType.INT32)
    entries = g.cast(table, DType.INT32)
    step = g.scalar(_APART, DType.INT32)
    # Mod rounds towards minus infinity, so the difference is a multiple of the divisor.
    offset = g.Mod(index, step)
    entry = g.Add(g.Div(g.Sub(index, offset), step), g.scalar(_COUNT // 2, DType.INT32))
    base = g.Gather(entries, entry)
    following = g.Gather(entries, g.Add(entry, g.scalar(1, DType.INT32)))
    # The kernel stores a slope in 16 bits, which wrap around.
    slope = g.cast(g.cast(g.Sub(following, base), DType.INT16), DType.INT32)
    rise = g.Add(g.Mul(slope, offset), g.scalar(_APART // 2, DType.INT32))
    delta = g.Div(g.Sub(rise, g.Mod(rise, step)), step)
    return g.cast(g.Add(base, delta), DType.INT16)
