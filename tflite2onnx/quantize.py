"""How quantized tensors are kept in ONNX: pure arithmetic on scales and zero points.

A quantized tensor is stored as integers. Operators that only move values move these; all others
read real values through DequantizeLinear and write through QuantizeLinear, and runtimes fuse
such a pattern into an integer kernel.

int8 activations may be stored as uint8 with a zero point 128 higher: the real values are the same,
and on x86-64 ONNX Runtime has integer kernels for them where it has none for int8. So may int8
weights, because kernels that multiply uint8 data by int8 weights saturate on some processors
(docs/quantization.md, "Which kernels can saturate").
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.errors import OperatorError
from tflite2onnx.tensor import Array, DType, Quantization, Tensor

_EIGHT_BITS = {DType.INT8, DType.UINT8}
# What integers that stand for real numbers are of.
QUANTIZED = {DType.INT2, DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16}
_WIDENED = {DType.INT2: DType.INT8, DType.INT4: DType.INT8, DType.UINT4: DType.UINT8}
# What an activation function leaves of the real numbers; None is no bound.
BOUNDS: dict[str, tuple[float, float | None]] = {
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}
# Integers as the numbers that they are, whatever they stand for.
AS_NUMBERS = Quantization(np.ones(1, np.float32), np.zeros(1, np.int64))


class Storage(NamedTuple):
    """How a tensor's elements are kept: real = scale * (stored - zero_point) where quantized.

    Where `folds`, a constant is made real by nodes that runtimes compute once, when they load the
    model; DequantizeLinear, which they keep for their integer kernels, runs each time. `dropped`
    low bits of each element are left out, and allowed for in the scale. `moved` says that 128 was
    added to int8 elements to store them as uint8, or subtracted from uint8 to store them as int8.
    """

    dtype: DType
    quantization: Quantization | None = None
    folds: bool = False
    dropped: int = 0
    moved: bool = False

    @property
    def scale(self) -> Array:
        """The scales, [1] or [n] along an axis; 1 if not quantized."""
        return self.quantization.scale if self.quantization else np.ones(1, np.float32)

    @property
    def zero_point(self) -> int:
        """The integer that stands for 0, for a tensor with one zero point; 0 if not quantized."""
        return int(self.quantization.zero_point[0]) if self.quantization else 0


def is_quantized(tensor: Tensor) -> bool:
    """Return whether a tensor's integers stand for real numbers.

    Wide integers do not, whatever scale they carry: kernels look at none. That of a bias follows
    from what it is added to (`bias_storage`).
    """
    return tensor.quantization is not None and tensor.dtype in QUANTIZED


def same_scale(a: Tensor, b: Tensor) -> bool:
    """Return whether the stored elements of two tensors of one type stand for the same."""
    if not is_quantized(a) and not is_quantized(b):
        return True
    return a.quantization is not None and a.quantization.same_as(b.quantization)


def storage(tensor: Tensor, *, unsigned: bool) -> Storage:
    """Return how a tensor is kept; int8 as uint8 if `unsigned`."""
    kept = Storage(tensor.dtype, tensor.quantization if is_quantized(tensor) else None)
    return move_zero_point(kept, DType.UINT8) if unsigned and tensor.dtype is DType.INT8 else kept


def move_zero_point(kept: Storage, dtype: DType) -> Storage:
    """Return how elements of 8 bits are stored as int8 or uint8; their real values are the same."""
    if kept.quantization is None or kept.dtype is dtype:
        return kept
    distance = 128 if dtype is DType.UINT8 else -128
    zero_point = kept.quantization.zero_point + distance
    return Storage(dtype, replace(kept.quantization, zero_point=zero_point), moved=True)


def weight_storage(x: Tensor, weights: Tensor, choice: str | None, *, folds: bool) -> Storage:
    """Return how the constant weights of a product are stored; `choice` is one of `WEIGHTS`.

    Where no kernel can saturate there is no choice (None): weights keep the file's type, which is
    faster for depthwise convolutions by int8 weights without zero point.

    1. Weights of quantized 8-bit data: "auto" and "uint8" store int8 weights as uint8, because
       kernels that multiply uint8 data by int8 weights saturate on x86-64 processors without
       VNNI. "int8" stores uint8 weights as int8.
    2. Weights under eight bits are widened to int8 or uint8: integer kernels multiply by nothing
       narrower. They cannot saturate: 2 * 255 * 8 fits into 16 bits.
    3. Weights of float data have no zero point, and uint8 weights are the bits of int8 weights
       (EvalHybrid in conv.cc and fully_connected.cc). Weights of 2 bits are widened, because what
       ONNX Runtime 1.31 makes of them and float data is wrong (MatMulNBits).
    4. Weights of float data that DequantizeLinear makes real: as 1. Where the data was dequantized
       ONNX Runtime makes a product of integers of it (MatMulIntegerToFloat).
    """
    kept = storage(weights, unsigned=False)
    if kept.quantization is None:
        return kept
    if is_quantized(x):
        if choice is None or not {x.dtype, weights.dtype} <= _EIGHT_BITS:
            return kept._replace(dtype=widen_subbyte(kept.dtype))
        return move_zero_point(kept, DType.INT8 if choice == "int8" else DType.UINT8)
    zero = np.zeros_like(kept.quantization.zero_point)
    dtype = DType.INT8 if kept.dtype in (DType.UINT8, DType.INT2) else kept.dtype
    signed = Storage(dtype, replace(kept.quantization, zero_point=zero), folds)
    if folds or choice in (None, "int8") or weights.dtype not in _EIGHT_BITS:
        return signed
    return move_zero_point(signed, DType.UINT8)


def is_exact_depthwise(weights: Tensor) -> bool:
    """Return whether no kernel of a depthwise convolution saturates or wraps with these weights.

    On x86-64 the products have 32 bits. On ARM64 kernels of 3x3 and 5x5 windows add two products of
    int8 in 16 bits, which is too narrow for two products of -128 by -128 only
    (qdwconv_kernelsize.cpp in MLAS).
    """
    lowest = -128
    return (
        weights.dtype is not DType.INT8
        or weights.data is None
        or (int(weights.data.min(initial=0)) > lowest)
    )


def bias_storage(x: Tensor, weights: Tensor, bias: Tensor) -> Storage | None:
    """Return how the bias of a quantized convolution or matrix product is kept, None if as it is.

    The kernels add its integers to the accumulators, whose scale is the input's times the
    weights', whatever scale the file gives (PopulateConvolutionQuantizationParams in
    kernel_util.cc lets it be 2 % off). ONNX's DequantizeLinear and the integer kernels take int32
    only; biases of int64 are sums that mostly fit into it. Of larger ones the low bits go, which
    a float32 would not hold either: as float32 ONNX Runtime would make int32 of it unasked
    (WeightBiasQuantization), whatever its size.

    Raises:
        OperatorError: a bias is too large for the accumulators of an integer kernel.
    """
    a, b = x.quantization, weights.quantization
    if bias.data is None or bias.dtype not in (DType.INT32, DType.INT64) or a is None or b is None:
        return None
    largest = max(abs(int(bias.data.max(initial=0))), abs(int(bias.data.min(initial=0))) - 1)
    dropped = max(largest.bit_length() - 31, 0)
    if dropped and x.dtype is not DType.INT16:
        raise OperatorError(f"{bias.name} does not fit into 32 bits")
    scale = a.scale[0].astype(np.float64) * b.scale.astype(np.float64) * 2.0**dropped
    quantization = Quantization(scale.astype(np.float32), np.zeros(scale.size, np.int64))
    return Storage(DType.INT32, quantization, dropped=dropped)


def encode_constant(data: Array, dtype: DType, kept: Storage) -> Array:
    """Return a constant's elements as they are kept.

    Elements of 8 bits are moved by 128 (`Storage.moved`), or uint8 elements are read as the bits of
    int8 (`weight_storage`). Types under eight bits are held in int8 and uint8 anyway.
    """
    if kept.moved:
        moved = data.view(np.uint8) ^ np.uint8(128)
        return np.asarray(moved.view(np.int8) if kept.dtype is DType.INT8 else moved)
    if dtype is DType.UINT8 and kept.dtype is DType.INT8:
        return data.view(np.int8)
    if dtype is DType.INT64 and kept.dtype is DType.INT32:
        return (data >> kept.dropped).astype(np.int32)
    return data


def decode_constant(data: Array, quantization: Quantization) -> Array:
    """Return the real numbers that stored integers in TFLite order stand for, as float32."""
    # A float32 holds each integer of 16 bits, and its product with the scale is rounded once.
    exact = np.dtype(np.float32 if data.itemsize <= 2 else np.float64)  # bytes
    scale = _broadcast_parameters(quantization.scale, quantization, data.ndim).astype(exact)
    zero = _broadcast_parameters(quantization.zero_point, quantization, data.ndim).astype(exact)
    real: Array = (data.astype(exact) - zero) * scale
    return real.astype(np.float32, copy=False)


def _broadcast_parameters(numbers: Array, quantization: Quantization, rank: int) -> Array:
    """Return scales or zero points in a shape that broadcasts to that of the tensor."""
    if quantization.block_size:
        return np.repeat(numbers, quantization.block_size, axis=-1)
    if not quantization.per_axis:
        return numbers.reshape(())
    return numbers.reshape([-1 if i == quantization.axis else 1 for i in range(rank)])


def widen_subbyte(dtype: DType) -> DType:
    """Return the type of eight bits that holds an element of fewer; other types are wide enough."""
    return _WIDENED.get(dtype, dtype)


def half_away_scale(slack: float) -> Quantization:
    """Return a scale in which halves of integers are rounded away from 0.

    QuantizeLinear rounds them to even. In a scale of `1 - slack` they are more than halves, and so
    is what is less than a half by no more than the slack.
    """
    return replace(AS_NUMBERS, scale=np.array([1 - slack], np.float32))


def integer_range(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest integer of a type."""
    if dtype.label.startswith("u"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def clamp(activation: str, kept: Storage) -> tuple[int, int] | None:
    """Return the integers to which an activation function clamps, None if saturation does it.

    The kernels round the bounds to integers and clamp there (CalculateActivationRangeQuantized
    in kernel_util.cc), so that clamping after QuantizeLinear gives their very numbers. What they
    round is a quotient in float32, which may be a half where that of float64 is less.
    """
    if activation not in BOUNDS or kept.quantization is None:
        return None
    low, high = integer_range(kept.dtype)
    scale, zero = kept.quantization.scale[0], kept.zero_point
    least, most = BOUNDS[activation]
    bounds = (
        max(low, zero + _round(np.float32(least) / scale)),
        high if most is None else min(high, zero + _round(np.float32(most) / scale)),
    )
    return None if bounds == (low, high) else bounds


def real_bounds(activation: str, given: Storage, kept: Storage) -> tuple[float, float]:
    """Return the smallest and the largest real number that an activation leaves of a range.

    It clamps integers by the scale that is given for them, whatever the kernel wrote them in.
    """
    low, high = clamp(activation, given) or integer_range(kept.dtype)
    scale = float(kept.scale[0])
    return (low - kept.zero_point) * scale, (high - kept.zero_point) * scale


def _round(number: float) -> int:
    """Round half away from zero, as TfLiteRound does."""
    return int(np.copysign(np.floor(abs(number) + 0.5), number))
