"""Stored integers to real numbers and back: DequantizeLinear, QuantizeLinear, or Cast and Mul.

Runtimes fuse an operator between DequantizeLinear and QuantizeLinear into an integer kernel. If
there is no such kernel, as for convolutions of float data with integer weights, a
DequantizeLinear of the weights would run each time; Cast and Mul are folded at load.
"""

import numpy as np

from tflite2onnx.builder.nodes import Nodes, Operand, Value, require_onnx_type
from tflite2onnx.builder.opsets import BLOCKS, find_first_opset
from tflite2onnx.errors import OperatorError
from tflite2onnx.layout import Order
from tflite2onnx.quantization.storage import (
    Storage,
    broadcast_parameters,
    encode_constant,
    order_parameters,
    widen_subbyte,
)
from tflite2onnx.tensor import Array, DType, Quantization


class QdqNodes(Nodes):
    """Collects nodes for one opset, and converts stored integers to real numbers and back."""

    def widen_storage(self, storage: Storage) -> Storage:
        """Return the storage of a constant, with a wider type if this opset lacks the type.

        Constants without a scale keep their type, as tensors do whose elements are only moved.
        """
        if storage.quantization is None or self.has_type(storage.dtype):
            return storage
        return storage._replace(dtype=widen_subbyte(storage.dtype))

    def store_constant(self, data: Array, dtype: DType, storage: Storage, name: str) -> Value:
        """Return a constant of a type in the file in its storage.

        Elements of less than 8 bits stay narrow in the ONNX file if the opset has their type. If
        operators read a wider type, a Cast follows, which runtimes compute once.
        """
        narrow = widen_subbyte(dtype) is not dtype and self.has_type(dtype)
        in_file = dtype if narrow else storage.dtype
        value = self.constant(encode_constant(data, dtype, storage), in_file, name)
        return (
            value
            if in_file is storage.dtype
            else self.Cast(value, to=require_onnx_type(storage.dtype))
        )

    def dequantize(
        self, x: Operand, storage: Storage, order: Order, *, zero_point: bool = True
    ) -> Value:
        """Return the float32 numbers that stored integers in an order stand for.

        Without `zero_point` the node has a zero point only if it is not 0.
        """
        quantization = _expect_quantization(storage)
        value, dtype = self._make_value(x), widen_subbyte(storage.dtype)
        if dtype is not storage.dtype and value is not None and value.data is None:
            # This node and an operator would be fused into an integer kernel, which runtimes lack
            # for 4 bits.
            x, storage = self.cast(x, dtype), storage._replace(dtype=dtype)
        first = find_first_opset(("DequantizeLinear", BLOCKS)) if quantization.block_size else 0
        if storage.folds or not self.supports(first, "a scale for each block"):
            numbers = self._emit_scaled(x, quantization, order)
            # If Mul scales the numbers, a runtime may multiply integers, unless Clip follows.
            numbers = self.Clip(numbers) if storage.hides else numbers
        else:
            numbers = self._emit_qdq("DequantizeLinear", x, storage, order, zero_point=zero_point)
        return self.annotate_like(x, numbers, DType.FLOAT32)

    def quantize(self, x: Operand, storage: Storage, order: Order) -> Value:
        """Return the stored integers that stand for real numbers."""
        integers = self._emit_qdq("QuantizeLinear", x, storage, order)
        return self.annotate_like(x, integers, storage.dtype)

    def annotate_like(
        self, x: Operand, result: Value, dtype: DType, axes: slice = slice(None)
    ) -> Value:
        """Record the sizes of some axes of x and an element type for a value; return the value."""
        value = self._make_value(x)
        if value and value in self.types:
            return self.annotate(result, dtype, self.types[value][1][axes])
        # Most dequantized constants are not needed: a node is added when one is read.
        if value and value.data is not None and not self.is_nested:
            return self.annotate(result, dtype, value.data.shape[axes])
        return result

    def _emit_qdq(
        self, op_type: str, x: Operand, storage: Storage, order: Order, *, zero_point: bool = True
    ) -> Value:
        quantization = _expect_quantization(storage)
        first, label = (
            find_first_opset((op_type, storage.dtype)),
            f"quantized {storage.dtype.label}",
        )
        if storage.dtype is DType.INT16 and not self.supports(first, label):
            emit = self._emit_scaled if op_type == "DequantizeLinear" else self._emit_rounded
            return emit(x, quantization, order)
        self.require(first, label)
        scale, zero = order_parameters(quantization, order)
        points = None
        if zero.any() or (zero_point and _needs_zero_point(storage)):
            constant = self.make_separate_constant if storage.dtype is DType.INT8 else self.constant
            points = constant(zero.astype(storage.dtype.numpy), storage.dtype)
        scales = self.constant(scale, DType.FLOAT32)
        if quantization.stored_scale.dtype == np.float16:  # runtimes cast the float16 scale at load
            half = self.constant(quantization.stored_scale.transpose(order))
            scales = self.cast(half, DType.FLOAT32)
        axis = order.index(quantization.axis) if scale.ndim else None
        size = quantization.block_size or None
        return self.node(op_type, x, scales, points, axis=axis, block_size=size)

    def _emit_scaled(self, x: Operand, quantization: Quantization, order: Order) -> Value:
        """Return the result of DequantizeLinear, by nodes of all opsets that runtimes fold."""
        scale, zero = broadcast_parameters(quantization, order)
        size, shape = quantization.block_size, scale.shape
        if size:
            axis = order.index(quantization.axis)
            x = self.reshape(x, (*shape[: axis + 1], size, *shape[axis + 2 :]))
        value = self.cast(x, DType.FLOAT32)
        if zero.any():
            value = self.Sub(value, self.constant(zero.astype(scale.dtype)))
        value = self.Mul(value, self.constant(scale))
        if not size:
            return value
        return self.reshape(value, (*shape[:axis], shape[axis] * size, *shape[axis + 2 :]))

    def _emit_rounded(self, x: Operand, quantization: Quantization, order: Order) -> Value:
        """Return the result of QuantizeLinear to int16, by nodes of all opsets."""
        scale, zero = broadcast_parameters(quantization, order)
        value = self.Round(self.Div(x, self.constant(scale)))
        if zero.any():
            value = self.Add(value, self.constant(zero.astype(scale.dtype)))
        limits = np.iinfo(np.int16)
        bounds = (self.scalar(limit, DType.FLOAT32) for limit in (limits.min, limits.max))
        return self.cast(self.Clip(value, *bounds), DType.INT16)


def _needs_zero_point(storage: Storage) -> bool:
    """Return whether a DequantizeLinear or QuantizeLinear must have a zero point, even if it is 0.

    DequantizeLinear of int32 must not have one. Runtimes fuse Gemm and elementwise operators only
    with zero points. They fuse products by weights with a scale for each block without zero
    points, too.
    """
    return storage.dtype is not DType.INT32 and not _expect_quantization(storage).block_size


def _expect_quantization(storage: Storage) -> Quantization:
    if storage.quantization is None:
        raise OperatorError(f"the {storage.dtype.label} tensor must have a scale")
    return storage.quantization
