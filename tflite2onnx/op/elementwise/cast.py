"""CAST, DEQUANTIZE and DENSIFY: the same elements in another form."""

from __future__ import annotations

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.common.checks import expect_same_shape
from tflite2onnx.op.elementwise.arithmetic import check_count
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.quantize import integer_range, is_quantized
from tflite2onnx.tensor import Array, DType

_PACKED = {DType.INT2, DType.INT4, DType.UINT4}
_PLAIN = {
    DType.BOOL,
    DType.FLOAT16,
    DType.FLOAT32,
    DType.FLOAT64,
    DType.BFLOAT16,
    DType.INT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT16,
    DType.UINT32,
}
_FLOAT32_BITS = 24  # of integers that all have a float32 of their own


class Cast(DynamicShape, Foldable):
    """CAST: floats become integers by cutting off and saturating, NaN the largest integer.

    Integers become narrower ones by dropping bits. The options say types too; like the kernel
    this believes the tensors. Of a quantized tensor it is the stored integers that are cast.
    """

    codes = ("CAST",)
    dynamic_axes = "..."
    category = Category.TRANSPARENT
    tflite = "... -> ..."
    computes_on_stored_integers = True

    def check(self) -> None:
        check_count(self.op, 1)
        source, target = self.input(0), self.output
        pair = {source.dtype, target.dtype}
        packed = pair & _PACKED and DType.FLOAT32 in pair
        if not (pair <= _PLAIN or packed):
            raise OperatorError(f"{source.dtype.label} cannot become {target.dtype.label}")
        expect_same_shape(source, target)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        source, target = x.dtype, y.dtype
        if source.is_float and target.is_integer:
            return _saturate_floats(g, x.value, source, target)
        return x.value if source is target else g.cast(x, target)

    def evaluate(self, *inputs: Array) -> list[Array] | None:
        source, target = self.input(0).dtype, self.output.dtype
        if DType.BFLOAT16 in (source, target):  # held as its bits
            return None
        (x,) = inputs
        if source.is_float and target.is_integer:
            return [_saturate(x, target)]
        if target is DType.FLOAT16:
            x = x.astype(np.float32)
        with np.errstate(over="ignore"):
            return [x.astype(target.numpy)]


def _saturate_floats(g: Builder, x: Value, source: DType, target: DType) -> Value:
    """Return the integers of floats; NaN becomes the largest.

    ONNX leaves open what Cast makes of floats beyond the range. The largest integer need not be
    a float, the first one beyond always is.
    """
    low, high = integer_range(target)
    if source is not DType.FLOAT64:
        source, x = DType.FLOAT32, x if source is DType.FLOAT32 else g.cast(x, DType.FLOAT32)
    within = g.Less(x, g.scalar(high + 1, source))  # not of NaN
    above = g.Max(x, g.scalar(low, source))
    if target.bits <= _FLOAT32_BITS:
        whole = g.Where(within, above, g.scalar(high, source))
        # Cast to types under eight bits rounds.
        byte = DType.UINT8 if low == 0 else DType.INT8
        return g.cast(g.cast(whole, byte) if target in _PACKED else whole, target)
    carrier = g.compute_type("Where", target)
    whole = g.Where(within, g.cast(above, carrier), g.scalar(high, carrier))
    return g.recast(whole, carrier, target)


def _saturate(x: Array, target: DType) -> Array:
    """Return what `_saturate_floats` makes, of a constant."""
    low, high = integer_range(target)
    wide = x.astype(np.float64)
    within = wide < high + 1
    inside = np.maximum(np.where(within, wide, 0), low)
    return np.where(within, inside.astype(target.numpy), np.array(high, target.numpy))


class Dequantize(DynamicShape):
    """DEQUANTIZE: real numbers of stored integers, which inputs are anyway, or of float16."""

    codes = ("DEQUANTIZE",)
    dynamic_axes = "..."
    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def check(self) -> None:
        check_count(self.op, 1)
        source, target = self.input(0), self.output
        known = is_quantized(source) or source.dtype is DType.FLOAT16
        if not known or target.dtype is not DType.FLOAT32:
            raise OperatorError(
                f"{source.dtype.label} without a scale cannot become {target.dtype.label}"
            )
        expect_same_shape(source, target)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return x.value if x.dtype is y.dtype else g.cast(x, y.dtype)


class Densify(Operator):
    """DENSIFY: the elements of a sparse constant, which `normalise` has made dense already."""

    codes = ("DENSIFY",)
    category = Category.TRANSPARENT

    def check(self) -> None:
        """Raise OperatorError: what is left of them has no constant to read."""
        check_count(self.op, 1)
        raise OperatorError(f"{self.input(0).name} is no sparse constant")
