"""Products of float data and integer weights ("dynamic range"), as in LiteRT's hybrid kernels.

The kernels quantize the data at run time, each row of a matrix and each image by its own extremes:
to -127 ... 127 around 0 (SymmetricQuantizeFloats in portable_tensor_utils.cc), or to 256 steps from
the minimum to the maximum (AsymmetricQuantizeFloats). Then they multiply integers.

Quantizing at run time costs time. docs/quantization.md has the measurements for the thresholds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tflite2onnx.builder.builder import Builder, Operand, Value
from tflite2onnx.op.common.checks import check_element_count
from tflite2onnx.quantization.storage import Storage, is_quantized
from tflite2onnx.tensor import Array, DType, Shape, Tensor

# The least extreme of a row: the scale of a row of zeros must not be 0.
_TINY = float(np.finfo(np.float32).tiny) * 255
# The middle of uint8: ONNX Runtime multiplies uint8 data faster than int8 data.
_MIDDLE = 128


def is_hybrid(data: Tensor, weights: Tensor) -> bool:
    """Return whether the data are float and the weights constant integers."""
    return not is_quantized(data) and is_quantized(weights) and weights.data is not None


@dataclass(frozen=True)
class QuantizedRows:
    """Data as uint8, in rows along the first axis: real = scale * (integers - zero_point).

    Scale and zero point are scalars if there is one row, else [rows]. `shared` is the zero point as
    a scalar if all rows have the same, else None.
    """

    integers: Value
    scale: Value
    zero_point: Value
    rows: int
    shared: Value | None

    def dequantize(self, g: Builder) -> Value:
        """Return the real numbers that the integers represent."""
        return g.DequantizeLinear(
            self.integers, self.scale, self.zero_point, axis=_find_axis((self.rows,))
        )


def symmetric(g: Builder, x: Operand, shape: Shape) -> QuantizedRows:
    """Quantize the rows of x, of this shape, to -127 ... 127 around 0."""
    check_element_count(shape[0])
    peak = g.Max(_reduce_rows(g, "ReduceMax", g.Abs(x), shape), g.scalar(_TINY, DType.FLOAT32))
    scale = g.Div(peak, g.scalar(127, DType.FLOAT32))
    middle = np.full((shape[0],) if shape[0] > 1 else (), _MIDDLE, np.uint8)
    zeros = [g.own_constant(middle, DType.UINT8) for _ in range(2)]
    integers = g.QuantizeLinear(x, scale, zeros[0], axis=_find_axis(shape))
    return QuantizedRows(integers, scale, zeros[1], shape[0], g.scalar(_MIDDLE, DType.UINT8))


def asymmetric(g: Builder, x: Operand, shape: Shape) -> QuantizedRows:
    """Quantize the rows of x, of this shape, to 256 steps that cover their extremes and 0."""
    if shape[0] == 1:
        integers, scale, zero = g.node_outputs("DynamicQuantizeLinear", 3, x)
        return QuantizedRows(integers, scale, zero, 1, zero)
    least = g.Min(_reduce_rows(g, "ReduceMin", x, shape), g.scalar(0, DType.FLOAT32))
    most = g.Max(_reduce_rows(g, "ReduceMax", x, shape), g.scalar(_TINY, DType.FLOAT32))
    scale = g.Div(g.Sub(most, least), g.scalar(255, DType.FLOAT32))
    zero = g.cast(g.Round(g.Div(g.Neg(least), scale)), DType.UINT8)
    integers = g.QuantizeLinear(x, scale, zero, axis=_find_axis(shape))
    return QuantizedRows(integers, scale, zero, shape[0], None)


def _find_axis(shape: Shape) -> int | None:
    return None if shape[0] == 1 else 0


def _reduce_rows(g: Builder, op_type: str, x: Operand, shape: Shape) -> Value:
    """Return the extreme of each row: a scalar if there is one row, else [rows]."""
    axes = None if shape[0] == 1 else list(range(1, len(shape)))
    return g.reduce(op_type, x, axes, keepdims=False)


def multiply(g: Builder, x: QuantizedRows, weights: Value, storage: Storage, sums: Array) -> Value:
    """Return [rows, features] times integer weights [features, out], as float32 [rows, out].

    `storage` is the type, zero point and scales (one or [out]) of the weights. `sums` are the sums
    of their columns after the zero point is subtracted. For one row, ONNX Runtime fuses all nodes
    into one kernel: MatMulIntegerToFloat, or DynamicQuantizeMatMul.
    """
    zero_point = g.scalar(storage.zero_point, storage.dtype) if storage.zero_point else None
    accumulators = g.MatMulInteger(x.integers, weights, x.shared, zero_point)
    scale = storage.scale if storage.scale.size > 1 else storage.scale.reshape(())
    if x.shared is None:  # MatMulInteger accepts no zero point per row
        zero = g.reshape(g.cast(x.zero_point, DType.INT32), (x.rows, 1))
        accumulators = g.Sub(accumulators, g.Mul(zero, sums))
    product = g.cast(accumulators, DType.FLOAT32)
    if x.rows == 1:
        return g.Mul(product, g.Mul(x.scale, scale))
    return g.Mul(g.Mul(product, scale), g.reshape(x.scale, (x.rows, 1)))
