"""Operators that quantizers leave behind: rotated channels, and differences to be looked at."""

from __future__ import annotations

import math

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type
from tflite2onnx.quantize import is_quantized
from tflite2onnx.tensor import Array, DType

_RANKS = (2, 3)
_WIDE = 64  # from here on two small matrices cost less than a large one


class HadamardRotation(Operator):
    """aeq.hadamard_rotation: blocks of the last axis times a Hadamard matrix.

    The matrix is that of Sylvester, of the rank 2 ** n, divided by its root. A large one is the
    Kronecker product of two smaller ones, and the blocks are matrices between them. The random
    signs among the options are not looked at by the kernel.
    """

    codes = ("aeq.hadamard_rotation",)
    custom = True
    category = Category.TERMINATE

    def check(self) -> None:
        x, size = self.input(0), int(self.options.get("hadamard_size", 0))
        if x.rank not in _RANKS or size < 1 or size & (size - 1) or x.shape[-1] % size:
            raise OperatorError(f"{list(x.shape)} is not made of blocks of a power of 2, {size}")
        check_element_count(2 * size)
        expect(x, x.shape, DType.FLOAT32)
        expect(self.output, x.shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = int(self.options.hadamard_size)
        if size <= _WIDE:
            blocks = g.reshape(x, [-1, size])
            return g.reshape(g.MatMul(blocks, _hadamard(size)), y.shape)
        inner = 1 << (size.bit_length() // 2)
        blocks = g.reshape(x, [-1, size // inner, inner])
        turned = g.MatMul(_hadamard(size // inner), g.MatMul(blocks, _hadamard(inner)))
        return g.reshape(turned, y.shape)


def _hadamard(size: int) -> Array:
    """Return the matrix that is its own inverse, float32 [size, size]."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(size)).astype(np.float32)


class NumericVerify(Operator):
    """NumericVerify: what quantization has changed, the one input minus the other.

    The kernel may also print what it finds, or fail; that is none of the model's numbers.
    """

    codes = ("NumericVerify",)
    custom = True
    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def check(self) -> None:
        x, real = self.input(0), self.input(1)
        expect_type(x, (DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT16))
        if x.dtype is not DType.FLOAT16 and not is_quantized(x):
            raise OperatorError(f"{x.name} has no scale")
        expect(real, x.shape, DType.FLOAT32)
        expect(self.output, x.shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, real: View) -> Value:
        return g.Sub(g.recast(x, x.dtype, DType.FLOAT32), real)
