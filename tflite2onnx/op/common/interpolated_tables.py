"""The error of LiteRT's kernels that interpolate a table between int16 inputs.

The kernels of EXP, GELU, LOG and RSQRT have the results for every 128th input (`LUTPopulate` and
`LUTLookup` in kernels/internal/common.h). Each result is corrected by half of the error in the
middle between two inputs. Where a function is steep, as LOG and RSQRT are near 0, the error is
thousands of steps; where the range of the output ends, the interpolation cuts the corner. The ONNX
model computes the function itself.
"""

from collections.abc import Callable

import numpy as np

from tflite2onnx.tensor import Array

_APART = 128  # the distance of two inputs in the table
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


def measure_table_error(function: Callable[[Array], Array], scale: float, unit: float) -> int:
    """Return the largest error of the table in steps of the output, over all int16 inputs.

    `scale` is the scale of the input, and `unit` that of the output. The function returns infinity
    where the kernel writes the largest integer, and minus infinity where it writes the smallest. A
    step more is allowed, because the function is rounded, too.
    """
    stored = np.arange(_LOW, _HIGH + 1)
    table = _make_table(function, scale, unit)
    places, between = np.divmod(stored - _LOW, _APART)
    slopes = table[places + 1] - table[places]
    interpolated = table[places] + ((slopes * between + _APART // 2) >> 7)
    exact = np.clip(np.rint(_evaluate(function, stored * scale, unit)), _LOW, _HIGH)
    return int(np.abs(interpolated - exact).max()) + 1


def _make_table(function: Callable[[Array], Array], scale: float, unit: float) -> Array:
    ends = np.arange(_LOW, _HIGH + 2, _APART)
    ends[-1] = _HIGH  # the kernel divides the range up to the largest input by 512
    inputs = np.linspace(_LOW * scale, _HIGH * scale, len(ends))
    results = _evaluate(function, inputs, unit)
    middles = _evaluate(function, (inputs[:-1] + inputs[1:]) / 2, unit)
    joined = np.rint((results[1:] + np.rint(results[:-1])) / 2)
    bias = np.rint((joined - np.rint(middles)) / 2)
    table = np.rint(results)
    table[:-1] -= bias
    return np.clip(table, _LOW, _HIGH).astype(np.int64)


def _evaluate(function: Callable[[Array], Array], inputs: Array, unit: float) -> Array:
    """Return results in steps of the output."""
    with np.errstate(all="ignore"):
        results = np.asarray(function(inputs), np.float64) / unit
    return np.nan_to_num(results, nan=0.0, posinf=_HIGH, neginf=_LOW)
