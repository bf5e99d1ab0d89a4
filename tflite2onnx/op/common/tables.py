"""Functions of 8-bit and 16-bit integers, as tables of their values.

LiteRT's kernels of EXP, GELU, LOG and RSQRT interpolate a table between int16 inputs: it has the
results for every 128th input (`LUTPopulate` and `LUTLookup` in kernels/internal/common.h). Each
result is corrected by half of the error in the middle between two inputs. Where a function is
steep, as LOG and RSQRT are near 0, the error is thousands of steps; where the range of the output
ends, the interpolation cuts the corner. The ONNX model computes the function itself.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, Value, View
from tflite2onnx.op.common.checks import expect
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType


def look_up(g: Builder, table: Value | View, x: View, index: Value | None = None) -> Value:
    """Return the elements of a table [n] at 8-bit integers; negative integers are at its end.

    An `index` of int32 for each element of `x` may be given in place of the integers.

    It emits GatherElements, because kernels of Gather copy each element as a block, which takes
    longer (docs/runtimes.md).
    """
    flat = g.reshape(g.cast(x, DType.INT32) if index is None else index, [-1])
    elements = g.GatherElements(table, flat, axis=0)
    if any(isinstance(size, str) for size in x.sizes):
        return g.reshape_to_sizes(elements, g.Shape(x))
    return g.reshape(elements, x.sizes)


_TABLE_SIZES = {DType.INT8: 256, DType.INT16: 513}


class IntegerTable(Operator):
    """Table: a function of stored integers, as a table of its values.

    The table for int16 has every 128th value; others are interpolated and rounded half up.
    """

    codes = ("Table",)
    category = Category.TRANSPARENT
    operands = "T:int8|int16 [...], T [n] -> T [...]"
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        x, table = self.input(0), self.input(1)
        expect(table, (_TABLE_SIZES[x.dtype],), x.dtype)

    def emit(self, g: Builder, y: View, x: View, table: View) -> Value:
        if x.dtype is DType.INT8:  # in the kernel, negative numbers are at the end of the table
            return look_up(g, table, x)
        index = g.cast(x, DType.INT32)
        entries = g.cast(table, DType.INT32)
        step = g.scalar(128, DType.INT32)
        # Mod rounds towards minus infinity, so the difference is a multiple of the divisor.
        offset = g.Mod(index, step)
        entry = g.Add(g.Div(g.Sub(index, offset), step), g.scalar(256, DType.INT32))
        base = g.Gather(entries, entry)
        following = g.Gather(entries, g.Add(entry, g.scalar(1, DType.INT32)))
        # The kernel stores a slope in 16 bits, which wrap around.
        slope = g.cast(g.cast(g.Sub(following, base), DType.INT16), DType.INT32)
        rise = g.Add(g.Mul(slope, offset), g.scalar(64, DType.INT32))
        delta = g.Div(g.Sub(rise, g.Mod(rise, step)), step)
        return g.cast(g.Add(base, delta), DType.INT16)


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
    """Return the 513 integers of the table."""
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
