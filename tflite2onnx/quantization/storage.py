"""How numbers are stored: element type, scale and zero point; arithmetic on stored integers."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.layout import Order, make_identity
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Tensor

# The element types of quantized tensors.
QUANTIZED = frozenset({DType.INT2, DType.INT4, DType.UINT4, DType.INT8, DType.UINT8, DType.INT16})
EIGHT_BITS = (DType.INT8, DType.UINT8)
_WIDENED = {DType.INT2: DType.INT8, DType.INT4: DType.INT8, DType.UINT4: DType.UINT8}
# The least and the greatest output of each activation function. None: there is no limit.
BOUNDS: dict[str, tuple[float, float | None]] = {
    "RELU": (0, None),
    "RELU6": (0, 6),
    "RELU_N1_TO_1": (-1, 1),
    "RELU_0_TO_1": (0, 1),
}
# The quantization in which each stored integer stands for itself.
AS_NUMBERS = Quantization(np.ones(1, np.float32), np.zeros(1, np.int64))


class Storage(NamedTuple):
    """How the elements of a tensor are stored: real = scale * (stored - zero_point) if quantized.

    If `folds` is set, a constant is dequantized by nodes that runtimes fold at load. (Runtimes keep
    a DequantizeLinear for their integer kernels, and run it each time.) If `hides` is set, too,
    runtimes do not recognize these nodes as a DequantizeLinear. `dropped` is the number of low bits
    of each element that are not stored; the scale includes their factor. `moved` is set if int8
    elements are stored as uint8 by adding 128, or uint8 elements as int8 by subtracting 128. If
    `adapts` is set, the file has int8 weights, and the model reads them as uint8, 128 higher, on
    processors whose products of uint8 by int8 are wrong. Nodes of the model test this at load
    (`builder.adaptive_weights`).
    """

    dtype: DType
    quantization: Quantization | None = None
    folds: bool = False
    hides: bool = False
    dropped: int = 0
    moved: bool = False
    adapts: bool = False

    @property
    def scale(self) -> Array:
        """The scales, float32 of shape [1], or [n] along an axis; [1.0] if not quantized."""
        return self.quantization.scale if self.quantization else np.ones(1, np.float32)

    @property
    def zero_point(self) -> int:
        """The stored integer that stands for 0, if there is one zero point; 0 if not quantized."""
        return int(self.quantization.zero_point[0]) if self.quantization else 0


REAL = Storage(DType.FLOAT32)


def is_quantized(tensor: Tensor) -> bool:
    """Return whether a tensor's integers stand for real numbers.

    Integers of 32 and 64 bits stand for no real numbers, even with a scale, because kernels ignore
    the scale. The scale of a bias follows from the scales of the operands (`find_bias_storage`).
    """
    return tensor.quantization is not None and tensor.dtype in QUANTIZED


def same_scale(a: Tensor, b: Tensor) -> bool:
    """Return whether equal stored elements of two tensors of one type stand for equal numbers."""
    if not is_quantized(a) and not is_quantized(b):
        return True
    return a.quantization is not None and a.quantization.same_as(b.quantization)


def same_quantization(a: Quantization | None, b: Quantization | None) -> bool:
    """Return whether two quantizations are None, or map stored integers to the same numbers."""
    return a is b if a is None or b is None else a.same_as(b)


def move_zero_point(storage: Storage, dtype: DType) -> Storage:
    """Return the storage of the same real numbers as int8 or uint8."""
    if storage.quantization is None or storage.dtype is dtype:
        return storage
    distance = 128 if dtype is DType.UINT8 else -128
    zero_point = storage.quantization.zero_point + distance
    return Storage(dtype, replace(storage.quantization, zero_point=zero_point), moved=True)


def as_numbers(storage: Storage) -> Storage:
    """Return the storage whose numbers are the integers minus their single zero point."""
    zero_point = np.array([storage.zero_point], np.int64)
    return storage._replace(quantization=replace(AS_NUMBERS, zero_point=zero_point))


def encode_constant(data: Array, dtype: DType, target: Storage) -> Array:
    """Return the elements of a constant of a type in the file as they are stored.

    Elements of 8 bits are moved by 128 (`Storage.moved`), or uint8 elements are read as the bits of
    int8 (`find_weight_storage`). numpy holds elements of less than 8 bits in int8 and uint8.
    """
    if target.moved:
        bits = data.view(np.uint8) ^ np.uint8(128)
        return np.asarray(bits.view(np.int8) if target.dtype is DType.INT8 else bits)
    if dtype is DType.UINT8 and target.dtype is DType.INT8:
        return data.view(np.int8)
    if dtype is DType.INT64 and target.dtype is DType.INT32:
        return (data >> target.dropped).astype(np.int32)
    return data


def decode_constant(data: Array, quantization: Quantization) -> Array:
    """Return the float32 numbers that stored integers, in TFLite order, stand for."""
    # float32 represents every integer of 16 bits exactly, so the product is rounded only once.
    exact = np.dtype(np.float32 if data.itemsize <= 2 else np.float64)
    scale, zero = broadcast_parameters(quantization, make_identity(data.ndim))
    blocks = data.reshape(*scale.shape[:-1], -1) if quantization.block_size else data
    numbers: Array = (blocks.astype(exact) - zero.astype(exact)) * scale.astype(exact)
    return numbers.astype(np.float32, copy=False).reshape(data.shape)


def encode_numbers(numbers: Array, quantization: Quantization, dtype: DType) -> Array:
    """Return the integers nearest to real numbers, in TFLite order; the type saturates them."""
    scale, zero = broadcast_parameters(quantization, make_identity(numbers.ndim))
    with np.errstate(invalid="ignore"):
        steps = np.rint(numbers.astype(np.float64) / scale) + zero
    return np.asarray(np.nan_to_num(np.clip(steps, *find_integer_range(dtype))), dtype.numpy)


def broadcast_parameters(quantization: Quantization, order: Order) -> tuple[Array, Array]:
    """Return scales and zero points in a shape for arithmetic with a tensor in an order.

    A tensor with a scale for each block has one more axis, after the axis of its blocks.
    """
    scale, zero = order_parameters(quantization, order)
    if not scale.ndim:
        return scale, zero
    axis = order.index(quantization.axis)
    shape: Shape = tuple(-1 if i == axis else 1 for i in range(len(order)))
    if quantization.block_size:
        shape = (*scale.shape[: axis + 1], 1, *scale.shape[axis + 1 :])
    return scale.reshape(shape), zero.reshape(shape)


def order_parameters(quantization: Quantization, order: Order) -> tuple[Array, Array]:
    """Return the scales and zero points of a tensor that is stored in an order."""
    scale, zero = quantization.scale, quantization.zero_point
    if quantization.block_size:
        return scale.transpose(order), zero.transpose(order)
    return (scale, zero) if quantization.per_axis else (scale.reshape(()), zero.reshape(()))


def widen_subbyte(dtype: DType) -> DType:
    """Return the 8-bit type that holds elements of less than 8 bits; other types are unchanged."""
    return _WIDENED.get(dtype, dtype)


def compute_half_away_scale(slack: float) -> Quantization:
    """Return a scale with which QuantizeLinear rounds halves of integers away from 0.

    QuantizeLinear rounds halves to even. Division by `1 - slack` turns a half, and a number that is
    less than a half by no more than the slack, into more than a half.
    """
    return replace(AS_NUMBERS, scale=np.array([1 - slack], np.float32))


def find_integer_range(dtype: DType) -> tuple[int, int]:
    """Return the smallest and largest integer of a type."""
    if dtype.label.startswith("u"):
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def clamp(activation: str, stored: Storage) -> tuple[int, int] | None:
    """Return the bounds in stored integers of an activation, None if saturation is enough.

    The kernels round the bounds to integers and clamp the stored integers
    (CalculateActivationRangeQuantized in kernel_util.cc), so clamping after QuantizeLinear gives
    equal results. The kernels round a quotient in float32, which may be a half where the quotient
    in float64 is less than a half.
    """
    if activation not in BOUNDS or stored.quantization is None:
        return None
    low, high = find_integer_range(stored.dtype)
    scale, zero = stored.quantization.scale[0], stored.zero_point
    lower, upper = BOUNDS[activation]
    bounds = (
        max(low, zero + _round(np.float32(lower) / scale)),
        high if upper is None else min(high, zero + _round(np.float32(upper) / scale)),
    )
    return None if bounds == (low, high) else bounds


def compute_real_bounds(activation: str, read: Storage, written: Storage) -> tuple[float, float]:
    """Return the least and the greatest real number after an activation and saturation.

    The activation clamps stored integers by the scale with which readers read them (`read`). The
    real numbers follow from the scale with which the kernel writes the integers (`written`).
    """
    low, high = clamp(activation, read) or find_integer_range(written.dtype)
    scale = float(written.scale[0])
    return (low - written.zero_point) * scale, (high - written.zero_point) * scale


def _round(number: float) -> int:
    """Round half away from zero, as TfLiteRound does."""
    return int(np.copysign(np.floor(abs(number) + 0.5), number))
