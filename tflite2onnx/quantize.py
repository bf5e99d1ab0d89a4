"""How quantized tensors are kept in ONNX: pure arithmetic on scales and zero points.

A quantized tensor is stored as integers. Operators that only move values move these; all others
read real values through DequantizeLinear and write through QuantizeLinear, and runtimes fuse
such a pattern into an integer kernel.

int8 activations may be kept as uint8 with a zero point 128 higher: the real values are the same,
and on x86-64 ONNX Runtime has integer kernels for them where it has none for int8.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

_QUANTIZED = {DType.INT2, DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16}
# What an activation function leaves of the real numbers; None is no bound.
BOUNDS: dict[str, tuple[float, float | None]] = {
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}


class Storage(NamedTuple):
    """How a tensor's elements are kept: real = scale * (stored - zero_point) where quantized."""

    dtype: DType
    quantization: Quantization | None = None

    @property
    def zero_point(self) -> int:
        """The integer that stands for 0, for a tensor with one zero point; 0 if not quantized."""
        return int(self.quantization.zero_point[0]) if self.quantization else 0


def is_quantized(tensor: Tensor) -> bool:
    """Return whether a tensor's integers stand for real numbers.

    Wide integers count only as constants: a bias has a scale, an index tensor that carries one
    is an index tensor.
    """
    if tensor.quantization is None:
        return False
    wide = tensor.dtype in (DType.INT32, DType.INT64) and tensor.data is not None
    return tensor.dtype in _QUANTIZED or wide


def storage(tensor: Tensor, *, unsigned: bool) -> Storage:
    """Return how a tensor is kept; int8 as uint8 if `unsigned`."""
    quantization = tensor.quantization if is_quantized(tensor) else None
    if not unsigned or quantization is None or tensor.dtype is not DType.INT8:
        return Storage(tensor.dtype, quantization)
    shifted = replace(quantization, zero_point=quantization.zero_point + 128)
    return Storage(DType.UINT8, shifted)


def weight_storage(x: Tensor, weights: Tensor) -> Storage:
    """Return how constant weights are kept: as they are in the file.

    Only uint8 weights of float data are not what they seem: the hybrid kernels read them as int8
    and take no zero point (EvalHybrid in conv.cc and fully_connected.cc).
    """
    kept = storage(weights, unsigned=False)
    if x.quantization is None and kept.quantization is not None and kept.dtype is DType.UINT8:
        zero = np.zeros_like(kept.quantization.zero_point)
        return Storage(DType.INT8, replace(kept.quantization, zero_point=zero))
    return kept


def bias_storage(x: Tensor, weights: Tensor, bias: Tensor) -> Storage | None:
    """Return how the bias of a quantized convolution or matrix product is kept, None if as it is.

    The kernels add its integers to the accumulators, whose scale is the input's times the
    weights', whatever scale the file gives (PopulateConvolutionQuantizationParams in
    kernel_util.cc lets it be 2 % off). ONNX's DequantizeLinear and the integer kernels take int32
    only; biases of int64 are sums that fit into it.
    """
    a, b = x.quantization, weights.quantization
    if bias.data is None or bias.dtype not in (DType.INT32, DType.INT64) or a is None or b is None:
        return None
    scale = (a.scale[0].astype(np.float64) * b.scale.astype(np.float64)).astype(np.float32)
    return Storage(DType.INT32, Quantization(scale, np.zeros(scale.size, np.int64)))


def stored(data: Array, dtype: DType, kept: DType) -> Array:
    """Return a constant's elements as they are kept.

    int8 as uint8 is the same plus 128; uint8 as int8 are the same bits (`weight_storage`).

    Raises:
        OperatorError: a bias of 64 bits is too large for 32.
    """
    if dtype is DType.INT64 and kept is DType.INT32:
        narrow = data.astype(np.int32)
        if not np.array_equal(narrow, data):
            message = "a bias of 64 bits does not fit into 32"
            raise OperatorError(message)
        return narrow
    if dtype is DType.INT8 and kept is DType.UINT8:
        return np.asarray(data.view(np.uint8) ^ np.uint8(128))
    if dtype is DType.UINT8 and kept is DType.INT8:
        return data.view(np.int8)
    return data


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest integer of a type."""
    if dtype.label.startswith("u"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def clamp(activation: str, kept: Storage) -> tuple[int, int] | None:
    """Return the integers to which an activation function clamps, None if saturation does it.

    The kernels round the bounds to integers and clamp there (CalculateActivationRangeQuantized
    in kernel_util.cc), so that clamping after QuantizeLinear gives their very numbers.
    """
    if activation not in BOUNDS or kept.quantization is None:
        return None
    low, high = integer_range(kept.dtype)
    scale, zero = float(kept.quantization.scale[0]), kept.zero_point
    least, most = BOUNDS[activation]
    bounds = (
        max(low, zero + _round(least / scale)),
        high if most is None else min(high, zero + _round(most / scale)),
    )
    return None if bounds == (low, high) else bounds


def _round(number: float) -> int:
    """Round half away from zero, as TfLiteRound does."""
    return int(np.copysign(np.floor(abs(number) + 0.5), number))
