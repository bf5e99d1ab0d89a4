"""CAST, DEQUANTIZE and DENSIFY: the same elements in another representation."""

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.made_options import CastOptions
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.op.common.checks import expect_input_count
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import Foldable, Pointwise
from tflite2onnx.quantization.declarations import Integers, Real
from tflite2onnx.quantization.storage import find_integer_range
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import has_dimensions

_PACKED = {DType.INT2, DType.INT4, DType.UINT4}
_PLAIN = "bool float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32"
_SIZES = 32  # bits: the type of a size has at least this width
_FLOAT32_BITS = 24  # float32 represents all integers of this number of bits


class Cast(Pointwise, Foldable):
    """CAST: floats are truncated and saturated to integers; NaN becomes the largest integer.

    Wide integers are cast to narrower integers by dropping bits. As in the kernel, the types of the
    tensors are used, not the types in the options. The stored integers of a quantized tensor are
    cast. `CastOptions.saturates` is False if LiteRT refuses floats outside
    of the range of the integers.
    """

    codes = ("CAST",)
    facts = (Fact.READS_STORED,)
    evaluates_dimensions = True
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        expect_input_count(self, 1)
        source, target = self.input(0), self.output
        pair = {source.dtype, target.dtype}
        packed = pair & _PACKED and DType.FLOAT32 in pair
        if not packed and not {dtype.label for dtype in pair} <= {*_PLAIN.split()}:
            raise OperatorError(
                f"CAST must be between types that LiteRT's kernel has,"
                f" got {source.dtype.label} to {target.dtype.label}"
            )

    def emit(self, g: Builder, y: View, x: View) -> Value:
        source, target = x.dtype, y.dtype
        if source.is_float and target.is_integer and self.op.read_made(CastOptions).saturates:
            return _saturate_floats(g, x.value, source, target)
        return x.value if source is target else g.cast(x, target)

    def evaluate(self, *inputs: Array) -> list[Array] | None:
        source, target = self.input(0).dtype, self.output.dtype
        if DType.BFLOAT16 in (source, target):  # numpy has bfloat16 as its bits only
            return None
        (x,) = inputs
        if has_dimensions(x):
            keeps_bits = source.is_integer and target.is_integer and target.bits >= _SIZES
            return [x] if keeps_bits else None
        if np.iscomplexobj(x) and (target.is_float or target.is_integer):
            x = x.real
        if x.dtype.kind == "f" and target.is_integer:
            return [_saturate_constant(x, target)]
        if target is DType.FLOAT16:
            x = x.astype(np.float32)
        with np.errstate(over="ignore"):
            return [x.astype(target.numpy)]


def _saturate_floats(g: Builder, x: Value, source: DType, target: DType) -> Value:
    """Return floats as truncated and saturated integers; NaN becomes the largest integer.

    ONNX does not define Cast of floats outside of the range. A float may not represent the largest
    integer, but always represents the largest integer + 1.
    """
    low, high = find_integer_range(target)
    if source is not DType.FLOAT64:
        source, x = DType.FLOAT32, x if source is DType.FLOAT32 else g.cast(x, DType.FLOAT32)
    is_below = g.Less(x, g.scalar(high + 1, source))  # the comparison is false for NaN
    clamped = g.Max(x, g.scalar(low, source))
    if target.bits <= _FLOAT32_BITS:
        whole = g.Where(is_below, clamped, g.scalar(high, source))
        # Cast rounds to types of less than 8 bits, and truncates to types of 8 bits.
        return g.cast(g.cast(whole, DType.INT8) if target in _PACKED else whole, target)
    compute_type = g.compute_type("Where", target)
    largest = g.scalar(high, compute_type)
    whole = g.Where(is_below, g.cast(clamped, compute_type), largest)
    return g.recast(whole, compute_type, target)


def _saturate_constant(x: Array, target: DType) -> Array:
    """Return the elements that `_saturate_floats` computes from a constant."""
    low, high = find_integer_range(target)
    numbers = x.astype(np.float64)
    is_below = numbers < high + 1
    clamped = np.maximum(np.where(is_below, numbers, 0), low)
    return np.where(is_below, clamped.astype(target.numpy), np.array(high, target.numpy))


class Dequantize(Pointwise):
    """DEQUANTIZE: integers with a scale, and float16, become float32.

    A constant input is the weights of a product of float data ("weight only"), which LiteRT
    dequantizes once. Runtimes fuse MatMul with the DequantizeLinear of a constant into a product
    that rounds the data to 8 bits. With Gemm they dequantize the weights in each run.
    """

    codes = ("DEQUANTIZE",)
    operands = "float16|quantized -> float32"
    quantization = Real(folds=True)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return x.value if x.dtype is y.dtype else g.cast(x, y.dtype)


class Densify(Operator):
    """DENSIFY: the dense form of a sparse constant; `densify_constants` folds valid constants."""

    codes = ("DENSIFY",)
    operands = "any -> any"
    category = Category.TRANSPARENT
    keeps_shape = True

    def check(self) -> None:
        """Raise OperatorError: a DENSIFY that is left has no sparse constant as its input."""
        raise OperatorError(f"{self.input(0).name} must be a sparse constant")
