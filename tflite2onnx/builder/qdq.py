"""Stored integers to real numbers and back: DequantizeLinear, QuantizeLinear, what stands for them.

ONNX Runtime fuses an operator between such pairs into an integer kernel. Where there is none for
it, as for convolutions of float data with integer weights, DequantizeLinear of the weights would
run each time; Cast and Mul are computed once, when the model is loaded.
"""

from __future__ import annotations

from tflite2onnx.builder.nodes import Nodes, Operand, Value, onnx_type
from tflite2onnx.builder.opsets import BLOCKS, first_opset
from tflite2onnx.errors import OperatorError
from tflite2onnx.layout import Order
from tflite2onnx.quantize import Storage, encode_constant, widen_subbyte
from tflite2onnx.tensor import Array, DType, Quantization, Shape


class QdqNodes(Nodes):
    """Collects nodes for one opset, and makes real numbers of integers."""

    def storage_in_opset(self, kept: Storage) -> Storage:
        """Return how a constant is kept in this opset: in a wider type if that has not its own."""
        return kept if self.has_type(kept.dtype) else kept._replace(dtype=widen_subbyte(kept.dtype))

    def stored_constant(self, data: Array, dtype: DType, kept: Storage, name: str) -> Value:
        """Return a constant, of a type in the file, as it is kept.

        What is narrower than eight bits stays so in the ONNX file, if the opset has such tensors.
        If it is read wider it is cast, which a runtime does once.
        """
        narrow = widen_subbyte(dtype) is not dtype and self.has_type(dtype)
        held = dtype if narrow else kept.dtype
        value = self.constant(encode_constant(data, dtype, kept), held, name)
        return value if held is kept.dtype else self.Cast(value, to=onnx_type(kept.dtype))

    def dequantize(self, x: Operand, kept: Storage, order: Order) -> Value:
        """Return the real numbers that stored integers in an order stand for."""
        quantization = _quantization(kept)
        blocks = quantization.block_size > 0
        if kept.folds or (
            blocks
            and not self.supports(first_opset(("DequantizeLinear", BLOCKS)), "scales of blocks")
        ):
            made = self._emit_scaled(x, quantization, order)
        else:
            made = self._pair("DequantizeLinear", x, kept, order)
        return self._annotate_like(x, made, DType.FLOAT32)

    def quantize(self, x: Operand, kept: Storage, order: Order) -> Value:
        """Return real numbers as the integers that are stored."""
        return self._annotate_like(x, self._pair("QuantizeLinear", x, kept, order), kept.dtype)

    def _annotate_like(self, x: Operand, made: Value, dtype: DType) -> Value:
        value = self._value_of(x)
        known = None if value is None else self.types.get(value)
        return made if known is None else self.annotate(made, dtype, known[1])

    def _pair(self, op_type: str, x: Operand, kept: Storage, order: Order) -> Value:
        quantization = _quantization(kept)
        self.require(first_opset((op_type, kept.dtype)), f"quantized {kept.dtype.label}")
        scale, zero = _order_parameters(quantization, order)
        # DequantizeLinear of int32 takes no zero point but 0; fusions want one on all others.
        wide = kept.dtype is DType.INT32
        points = None if wide else self.own_constant(zero.astype(kept.dtype.numpy), kept.dtype)
        scales = self.own_constant(scale, DType.FLOAT32)
        axis = order.index(quantization.axis) if scale.ndim else None
        size = quantization.block_size or None
        return self.node(op_type, x, scales, points, axis=axis, block_size=size)

    def _emit_scaled(self, x: Operand, quantization: Quantization, order: Order) -> Value:
        """Return the same as DequantizeLinear, of nodes that are older and computed once."""
        scale, zero = _order_parameters(quantization, order)
        axis = order.index(quantization.axis)
        if quantization.block_size:
            ahead, behind = scale.shape[: axis + 1], scale.shape[axis + 1 :]
            x = self.reshape(x, (*ahead, quantization.block_size, *behind))
            shape: Shape = (*ahead, 1, *behind)
        else:
            shape = tuple(-1 if i == axis else 1 for i in range(len(order))) if scale.ndim else ()
        value = self.cast(x, DType.FLOAT32)
        if zero.any():
            value = self.Sub(value, self.constant(zero.reshape(shape).astype(scale.dtype)))
        value = self.Mul(value, self.constant(scale.reshape(shape)))
        if not quantization.block_size:
            return value
        return self.reshape(value, (*ahead[:-1], ahead[-1] * quantization.block_size, *behind))


def _quantization(kept: Storage) -> Quantization:
    if kept.quantization is None:
        raise OperatorError(f"{kept.dtype.label} has no scale")
    return kept.quantization


def _order_parameters(quantization: Quantization, order: Order) -> tuple[Array, Array]:
    """Return scales and zero points as they belong to a tensor in an order."""
    both = quantization.scale, quantization.zero_point
    if quantization.block_size:
        scale, zero = (each.transpose(order) for each in both)
    else:
        scale, zero = (each if quantization.per_axis else each.reshape(()) for each in both)
    return scale, zero
