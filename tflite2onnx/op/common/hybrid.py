"""Products of float data and integer weights ("dynamic range"), as LiteRT computes them by default.

The kernels quantize the data at run time, each row of a matrix and each image by its own extremes,
and multiply integers. XNNPACK, LiteRT's default delegate, uses 256 steps from the minimum to the
maximum, 0 included (xnn_f32_qd8_asymmetric_quantization_params in quantization.h). LiteRT's own
kernels compute operators that the delegate does not support. These kernels use 256 steps as well
(AsymmetricQuantizeFloats in portable_tensor_utils.cc), or the integers -127 ... 127 with the zero
point 0 (SymmetricQuantizeFloats).

docs/quantization.md says which operators the delegate supports, and which form is faster.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value, View
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.quantization.rules import Reading
from tflite2onnx.quantization.storage import encode_constant, is_quantized
from tflite2onnx.tensor import Array, DType, Shape, Tensor
from tflite2onnx.utils.mapped_files import read_rows

# The least range of a row: it keeps the scale of a row of zeros above 0.
_TINY = float(np.finfo(np.float32).tiny) * 255
# The middle of uint8: runtimes multiply uint8 data faster than int8 data (docs/quantization.md).
_MIDDLE = 128


def is_hybrid(data: Tensor, weights: Tensor) -> bool:
    """Return whether the data are float and the weights constant integers."""
    return not is_quantized(data) and is_quantized(weights) and weights.data is not None


class QuantizedRows(NamedTuple):
    """Data as uint8, in rows along the first axis: real = scale * (integers - zero_point).

    Scale and zero point are scalars if `is_one`, else [rows]. `offsets` are the zero points minus
    the middle of uint8, float32 [rows]; None if the zero points are a scalar or the middle.
    `zero_point` is None if all are 0.
    """

    integers: Value
    scale: Value
    zero_point: Value | None
    is_one: bool
    offsets: Value | None = None

    def dequantize(self, g: Builder) -> Value:
        """Return the real numbers that the integers represent."""
        axis = None if self.is_one else 0
        return g.DequantizeLinear(self.integers, self.scale, self.zero_point, axis=axis)


def quantize_symmetric(g: Builder, x: Operand, shape: Shape) -> QuantizedRows:
    """Quantize the rows of x, of this shape, to -127 ... 127 with the zero point 0."""
    rows, is_one = shape[0], shape[0] == 1
    check_element_count(rows)
    axes = None if is_one else range(1, len(shape))
    peak = _reduce_rows(g, "ReduceMax", g.Abs(x), axes)
    peak = g.Max(peak, g.scalar(_TINY, DType.FLOAT32))
    scale = g.Div(peak, g.scalar(127, DType.FLOAT32))
    middle = np.full(() if is_one else (rows,), _MIDDLE, np.uint8)
    zeros = [g.make_separate_constant(middle, DType.UINT8) for _ in range(2)]
    integers = g.QuantizeLinear(x, scale, zeros[0], axis=None if is_one else 0)
    return QuantizedRows(integers, scale, zeros[1], is_one)


def quantize_asymmetric(
    g: Builder, x: Operand, rank: int, *, is_one: bool, positive: bool = False
) -> QuantizedRows:
    """Quantize the rows of x to 256 steps that cover their extremes and 0.

    The number of rows may be dynamic; with `is_one` there is one row. DynamicQuantizeLinear has
    XNNPACK's formula: the scales differ by a unit in the last place at most. `positive` data have
    no number below 0, so all zero points are 0.
    """
    if is_one:
        integers, scale, zero = g.node_outputs("DynamicQuantizeLinear", 3, x)
        return QuantizedRows(integers, scale, zero, is_one)
    axes = range(1, rank)
    maximum = g.Max(_reduce_rows(g, "ReduceMax", x, axes), g.scalar(_TINY, DType.FLOAT32))
    steps = g.scalar(255, DType.FLOAT32)
    if positive:
        scale = g.Div(maximum, steps)
        integers = g.annotate_like(x, g.QuantizeLinear(x, scale, axis=0), DType.UINT8)
        return QuantizedRows(integers, scale, None, is_one=False)
    minimum = g.Min(_reduce_rows(g, "ReduceMin", x, axes), g.scalar(0, DType.FLOAT32))
    scale, one = g.Div(g.Sub(maximum, minimum), steps), g.scalar(1, DType.FLOAT32)
    # With a scale for each number, QuantizeLinear would quantize the numbers one by one.
    zero = g.QuantizeLinear(g.Div(g.Neg(minimum), scale), one)
    # Nodes of older opsets need the type and the number of axes.
    g.annotate_like(x, zero, DType.UINT8, slice(1))
    integers = g.annotate_like(x, g.QuantizeLinear(x, scale, zero, axis=0), DType.UINT8)
    offsets = g.DequantizeLinear(zero, one, g.scalar(_MIDDLE, DType.UINT8))
    return QuantizedRows(integers, scale, zero, is_one=False, offsets=offsets)


def _reduce_rows(g: Builder, op_type: str, x: Operand, axes: Sequence[int] | None) -> Value:
    """Return the extreme of each row: a scalar if there are no axes, else [rows]."""
    return g.reduce(op_type, x, None if axes is None else list(axes), keepdims=False)


def multiply_rows(
    g: Builder,
    x: QuantizedRows,
    weights: View,
    columns: Value,
    bias: Value | None = None,
    *,
    is_matrix: bool,
    units: int = 0,
) -> Value:
    """Return [rows, features] times weights [features, out], plus a bias [out].

    The weights are multiplied as integers if DequantizeLinear reads them, otherwise as real
    numbers. `columns` are the real numbers of the weights. `units` is the axis of the outputs in
    the file. The bias of one row is added with three axes: runtimes would make Gemm of MatMul and
    of Add with two axes, and dequantize the weights in each run. Without a bias, a Reshape stands
    before any Add of a result that `is_matrix`.
    """
    if weights.plan.reading is not Reading.DEQUANTIZED and not (x.is_one and bias is None):
        return g.Gemm(x.dequantize(g), columns, bias)
    if x.is_one:  # x has one row, but may have other axes than rows and features
        product = g.MatMul(x.dequantize(g), columns)
        if bias is None:
            is_apart = is_matrix and weights.plan.reading is Reading.DEQUANTIZED
            return g.Reshape(product, [1, -1]) if is_apart else product
        return g.reshape(g.Add(product, g.reshape(bias, (1, 1, -1))), (1, -1))
    # The integer kernel takes one scale and one zero point for all rows.
    product = g.Mul(multiply_integers(g, x, columns), g.Unsqueeze(x.scale, [1]))
    if x.offsets is None:
        return product if bias is None else g.Add(product, bias)
    sums, rest = g.constant(negate_column_sums(weights, units)), scale_offsets(g, x)
    if bias is not None:
        # One Gemm adds both terms: it multiplies the offsets and ones by the sums and the bias.
        rest = g.Pad(rest, [0, 0, 1, 0], g.scalar(1, DType.FLOAT32))
        sums = g.Concat(sums, g.reshape(bias, (1, -1)), axis=0)
    return g.Gemm(rest, sums, product, transA=1)


def multiply_integers(g: Builder, x: QuantizedRows, columns: Value) -> Value:
    """Return integers, minus the middle of uint8, times columns of real weights.

    Without zero points, nothing is subtracted from the integers.
    """
    one = g.scalar(1, DType.FLOAT32)
    middle = g.scalar(0 if x.zero_point is None else _MIDDLE, DType.UINT8)
    return g.MatMul(g.DequantizeLinear(x.integers, one, middle), columns)


def scale_offsets(g: Builder, x: QuantizedRows) -> Value:
    """Return the real numbers of the offsets, [1, rows]: Pad is slow for columns."""
    assert x.offsets is not None  # noqa: S101 - callers look
    return g.Unsqueeze(g.Mul(x.offsets, x.scale), [0])


def negate_column_sums(weights: View, units: int) -> Array:
    """Return the negated sum of the real weights of each output, float32 [1, outputs]."""
    storage = weights.plan.storage
    integers = encode_constant(weights.constant, weights.tensor.dtype, storage)
    rows = np.moveaxis(integers, units, 0).reshape(integers.shape[units], -1)
    parts = [part.sum(1, dtype=np.int64) for part in read_rows(rows)]
    sums = np.array([], np.int64) if not parts else np.concatenate(parts)
    sums = storage.zero_point * rows.shape[1] - sums
    return np.asarray((sums * storage.scale.astype(np.float64)).astype(np.float32).reshape(1, -1))
