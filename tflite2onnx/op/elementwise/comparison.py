"""Comparisons of elements. Nothing equals NaN, nor is it more or less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.elementwise.arithmetic import Elementwise, ElementwiseRule, Emit
from tflite2onnx.quantize import Storage, integer_range
from tflite2onnx.tensor import Array, DType

_TYPES = "float32 float16 int16 int32 int64"
# Of these, int16 is compared as it is stored, whatever it stands for.
_ORDERED = frozenset({"GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"})


def comparison(op_type: str) -> Emit:
    """Return what emits one node, whose output is bool."""

    def emit(g: Builder, dtype: DType, _: Options, *xs: Operand) -> Value:
        carrier = g.compute_type(op_type, dtype)
        return g.node(op_type, *(x if carrier is dtype else g.cast(x, carrier) for x in xs))

    return emit


def not_equal(g: Builder, dtype: DType, options: Options, *xs: Operand) -> Value:
    """Emit the opposite of Equal."""
    return g.Not(comparison("Equal")(g, dtype, options, *xs))


class Comparison(Elementwise):
    """Two inputs that broadcast, compared.

    Of quantized tensors the kernels compare what they make of the integers, see
    `comparable_integers`.
    """

    arity = 2
    makes = DType.BOOL
    rows: ClassVar[Mapping[str, ElementwiseRule]] = {
        "EQUAL": ElementwiseRule(comparison("Equal"), f"{_TYPES} bool string", np.equal),
        "GREATER": ElementwiseRule(comparison("Greater"), f"{_TYPES} bfloat16", np.greater),
        "GREATER_EQUAL": ElementwiseRule(comparison("GreaterOrEqual"), _TYPES, np.greater_equal),
        "LESS": ElementwiseRule(comparison("Less"), f"{_TYPES} bfloat16", np.less),
        "LESS_EQUAL": ElementwiseRule(comparison("LessOrEqual"), _TYPES, np.less_equal),
        "NOT_EQUAL": ElementwiseRule(not_equal, f"{_TYPES} bool string", np.not_equal),
    }
    codes = tuple(rows)

    def reads_stored_integers(self) -> bool:
        return True

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        raw = xs[0].dtype is DType.INT16 and self.op.code in _ORDERED
        if raw or any(x.storage.quantization is None for x in xs):
            return super().emit(g, y, *xs)
        one, other = tables = [comparable_integers(x.storage) for x in xs]
        found = [g.cast(x, DType.INT32) for x in xs]
        if not (np.array_equal(one, other) and _is_increasing(one, xs[0].dtype)):
            found = [g.Gather(table, x) for table, x in zip(tables, found, strict=True)]
        return self.row.emit(g, DType.INT32, self.options, *found)


def comparable_integers(kept: Storage) -> Array:
    """Return what the kernels compare in place of stored integers: int32, by the integers' bits.

    It is the real number in steps of 1 / 256, however fine the scale is: close numbers are equal
    (ComparisonQuantized in comparisons.cc). A negative integer finds its place as an index that
    counts from the end.

    The arithmetic is gemmlowp's, which rounds twice: a product with 31 bits of the scale upwards,
    then its power of two away from zero.
    """
    scale = kept.quantization.scale[0] if kept.quantization else 1
    fraction, exponent = np.frexp(np.float64(scale))
    multiplier = np.int64(np.floor(fraction * 2**31 + 0.5))
    product = ((_all_integers(kept.dtype) - kept.zero_point) * 256 * multiplier + 2**30) >> 31
    right, left = max(-int(exponent), 0), max(int(exponent), 0)
    rounded = (np.abs(product) + (1 << right >> 1)) >> right << left
    return np.asarray(np.sign(product) * rounded, np.int32)


def _all_integers(dtype: DType) -> Array:
    """Return the integers of a type by their bits: those that are not negative first."""
    low, high = integer_range(dtype)
    return np.asarray([*range(high + 1), *range(low, 0)], np.int64)


def _is_increasing(table: Array, dtype: DType) -> bool:
    """Return whether larger integers have larger entries."""
    return bool((np.diff(table[np.argsort(_all_integers(dtype))]) > 0).all())
