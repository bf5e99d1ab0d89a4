"""Operators that quantizers add to models: Hadamard rotations, and quantization errors."""

import math
from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, OutputShape, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect_rank, expect_type
from tflite2onnx.op.traits import Pointwise
from tflite2onnx.tensor import Array, DType

_RANKS = (2, 3)
# Above this size, products by two small matrices take less time than by one large matrix.
_WIDE = 64


class HadamardRotation(Operator):
    """aeq.hadamard_rotation: blocks of the last axis times a Hadamard matrix.

    The matrix is Sylvester's, of size 2 ** n, divided by the square root of the size. A large
    matrix is the Kronecker product of two smaller matrices: each block is reshaped to a matrix and
    multiplied from both sides. The kernel ignores the random signs in the options.
    """

    codes = ("aeq.hadamard_rotation",)
    operands = "float32 -> float32"

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, y = self.input(0), self.output
        # The kernel copies the elements to an output of the declared shape.
        if y.elements == x.elements:
            return [y.shape]
        expect_rank(y, x.rank)
        return [x.shape]

    def check(self) -> None:
        x, size = self.input(0), int(self.options.get("hadamard_size", 0))
        if x.rank not in _RANKS or size < 1 or size & (size - 1) or x.shape[-1] % size:
            raise OperatorError(
                "x must have 2 or 3 axes, and a last axis of blocks whose size is a power of 2,"
                f" got {list(x.shape)} and blocks of {size}"
            )
        check_element_count(2 * size)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        size = int(self.options.hadamard_size)
        if size <= _WIDE:
            blocks = g.reshape(x, [-1, size])
            return g.reshape(g.MatMul(blocks, _make_hadamard(size)), y.shape)
        inner = 1 << (size.bit_length() // 2)
        blocks = g.reshape(x, [-1, size // inner, inner])
        rotated = g.MatMul(_make_hadamard(size // inner), g.MatMul(blocks, _make_hadamard(inner)))
        return g.reshape(rotated, y.shape)


def _make_hadamard(size: int) -> Array:
    """Return the normalized Hadamard matrix, its own inverse: float32 [size, size]."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return (matrix / math.sqrt(size)).astype(np.float32)


class NumericVerify(Pointwise):
    """NumericVerify: the quantization error, the dequantized input minus the float input.

    The kernel can also log large errors or fail for them; the ONNX graph does neither.
    """

    codes = ("NumericVerify",)
    operands = "quantized|float16 [...], float32 [...] -> float32"

    def check(self) -> None:
        expect_type(self.input(0), (DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT16))

    def emit(self, g: Builder, y: View, x: View, reference: View) -> Value:
        return g.Sub(g.recast(x, x.dtype, DType.FLOAT32), reference)
