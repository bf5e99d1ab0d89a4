"""Comparisons of elements, and BUCKETIZE. Comparisons with NaN are false, except NOT_EQUAL."""

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.graph import Options
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.elementwise.arithmetic import Elementwise, Emit, Row
from tflite2onnx.op.traits import Pointwise
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.quantization.storage import Storage, find_integer_range
from tflite2onnx.tensor import Array, DType
from tflite2onnx.utils.dimension import has_dimensions, is_equal

_TYPES = "float32 float16 int8 uint8 int16 int32 int64"
# The kernels of these operators compare the stored int16 numbers and ignore the scales.
_ORDERED = frozenset({"GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"})


def emit_comparison(op_type: str) -> Emit:
    """Return a function that emits one node, whose output is bool."""

    def emit(g: Builder, dtype: DType, _: Options, *xs: Operand) -> Value:
        compute_type = g.compute_type(op_type, dtype)
        operands = (x if compute_type is dtype else g.cast(x, compute_type) for x in xs)
        return g.node(op_type, *operands)

    return emit


def emit_not_equal(g: Builder, dtype: DType, options: Options, *xs: Operand) -> Value:
    """Emit the opposite of Equal."""
    return g.Not(emit_comparison("Equal")(g, dtype, options, *xs))


def _compare_equal(a: Array, b: Array) -> Array:
    """Return a mask of equal elements; a comparison of dimensions may be undecided."""
    if has_dimensions(a) or has_dimensions(b):
        return np.asarray(np.frompyfunc(is_equal, 2, 1)(a, b), np.bool_)
    return np.equal(a, b)


class Comparison(Elementwise):
    """A comparison of two inputs that broadcast.

    The kernels rescale stored integers before they compare them, see `list_comparable_integers`.
    """

    arity = 2
    evaluates_dimensions = True
    makes = DType.BOOL
    quantization = Integers(takes_infinity=True)
    rows: ClassVar[Mapping[str, Row]] = {
        "EQUAL": Row(emit_comparison("Equal"), f"{_TYPES} bool string", _compare_equal),
        "GREATER": Row(emit_comparison("Greater"), f"{_TYPES} bfloat16", np.greater),
        "GREATER_EQUAL": Row(emit_comparison("GreaterOrEqual"), _TYPES, np.greater_equal),
        "LESS": Row(emit_comparison("Less"), f"{_TYPES} bfloat16", np.less),
        "LESS_EQUAL": Row(emit_comparison("LessOrEqual"), _TYPES, np.less_equal),
        "NOT_EQUAL": Row(
            emit_not_equal, f"{_TYPES} bool string", lambda a, b: ~_compare_equal(a, b)
        ),
    }

    def check(self) -> None:
        super().check()
        inputs = [self.input(i) for i in range(2)]
        # The kernels of 8 bits read both scales, and end the process without them.
        has_scale = {t.quantization is not None for t in inputs}
        if len(has_scale) > 1 and inputs[0].dtype in (DType.INT8, DType.UINT8):
            raise OperatorError("both inputs must have a scale or none, got one with a scale")

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        raw = xs[0].dtype is DType.INT16 and self.op.code in _ORDERED
        if raw or any(x.storage.quantization is None for x in xs):
            return super().emit(g, y, *xs)
        left, other = tables = [list_comparable_integers(x.storage) for x in xs]
        operands = [g.cast(x, DType.INT32) for x in xs]
        if not (np.array_equal(left, other) and _is_increasing(left, xs[0].dtype)):
            operands = [g.Gather(table, x) for table, x in zip(tables, operands, strict=True)]
        return self.rows[self.op.code].emit(g, DType.INT32, self.options, *operands)


def list_comparable_integers(stored: Storage) -> Array:
    """Return the int32 that the kernels compare for each stored integer, indexed by its bits.

    An entry is the real number in units of 1 / 256. Close numbers are equal, even if the scale is
    finer (ComparisonQuantized in comparisons.cc). A negative stored integer is an index from the
    end.

    The arithmetic is gemmlowp's, which rounds twice: the product with 31 bits of the scale is
    rounded half up, then the shift rounds half away from zero.

    ai-edge-quantizer writes an infinite scale for the infinity of torch.isinf and logsumexp. The
    kernel's multiplier is then 0: on x86-64, C makes -2**63 of infinity, whose low 32 bits it
    takes (QuantizeMultiplier).
    """
    scale = stored.quantization.scale[0] if stored.quantization else 1
    scale = scale if scale < np.inf else 0
    fraction, exponent = np.frexp(np.float64(scale))
    multiplier = np.int64(np.floor(fraction * 2**31 + 0.5))
    product = ((_list_integers(stored.dtype) - stored.zero_point) * 256 * multiplier + 2**30) >> 31
    right, left = max(-int(exponent), 0), max(int(exponent), 0)
    rounded = (np.abs(product) + (1 << right >> 1)) >> right << left
    return np.asarray(np.sign(product) * rounded, np.int32)


def _list_integers(dtype: DType) -> Array:
    """Return the integers of a type in the order of their bits: negative integers last."""
    low, high = find_integer_range(dtype)
    return np.asarray([*range(high + 1), *range(low, 0)], np.int64)


def _is_increasing(table: Array, dtype: DType) -> bool:
    """Return whether larger integers have larger entries."""
    return bool((np.diff(table[np.argsort(_list_integers(dtype))]) > 0).all())


class Bucketize(Pointwise):
    """BUCKETIZE: the number of sorted boundaries that are not larger than each element.

    Boundaries are float32, and integers are compared with them as float32. NaN is in the last
    bucket.
    """

    codes = ("BUCKETIZE",)
    operands = "float32|float64|int32|int64 -> int32"

    def check(self) -> None:
        boundaries = tuple(self.options.boundaries or ())
        if not all(a <= b for a, b in pairwise(boundaries)):  # a comparison with NaN is false
            raise OperatorError(f"boundaries must be sorted, got {list(boundaries)}")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        compute_type = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
        boundaries = np.asarray(self.options.boundaries or (), np.float32)
        boundaries = boundaries.astype(compute_type.numpy)
        if not boundaries.size:
            return g.Expand(g.scalar(0, DType.INT32), g.runtime_shape(y.sizes, x))
        column = g.Unsqueeze(g.recast(x, x.dtype, compute_type), [x.rank])
        # GreaterOrEqual would be false for NaN.
        reached = g.Not(g.Less(column, boundaries))
        count = g.reduce("ReduceSum", g.cast(reached, DType.INT64), [x.rank], keepdims=False)
        return g.cast(count, DType.INT32)
