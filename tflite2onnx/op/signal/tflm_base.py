"""Base class and integer arithmetic of the operators of TFLite Micro's audio front end.

Unsigned integers of 32 and 64 bits are computed as int64, which is large enough for real signals.
Numbers that wrap around in the kernels wrap around here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflite2onnx.op.base import Builder, Operator, OperatorError, Value
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType, Shape, Tensor

WORD = 32  # bits


class Signal(Operator):
    """An operator of the front end, which computes on stored integers along one axis."""

    quantization = Integers(in_file_types=True)

    def option(self, name: str, low: int = 0, high: int = WORD - 1) -> int:
        """Return an option; OperatorError unless low <= option <= high (a shift, by default)."""
        number = int(self.options.get(name, 0))
        if not low <= number <= high:
            raise OperatorError(f"its {name} must be from {low} to {high}, got {number}")
        return number

    def vector(self, index: int, dtype: DType) -> int:
        """Return the length of an input; OperatorError unless it has one axis and this type."""
        tensor = self.input(index)
        size = tensor.elements
        check_element_count(size)
        if not size:
            raise OperatorError(f"{tensor.name} must have elements, got {list(tensor.shape)}")
        expect(tensor, (size,), dtype)
        return size

    def state_tensor(self, what: str, shape: Shape, dtype: DType) -> Tensor:
        """Return a tensor for `internal_state`, whose initial value is 0."""
        return Tensor(f"{self.output.name}/{what}", shape, dtype)


def scalars(g: Builder) -> Callable[[int], Value]:
    """Return a function that returns an integer as a constant int64."""
    return lambda number: g.scalar(number, DType.INT64)


def emit_maximum(g: Builder, a: Value, b: Value) -> Value:
    """Return the elementwise maximum of int64 values."""
    return g.in_compute_type("Max", DType.INT64, a, b)


def emit_minimum(g: Builder, a: Value, b: Value) -> Value:
    """Return the elementwise minimum of int64 values."""
    return g.in_compute_type("Min", DType.INT64, a, b)


def powers(count: int) -> Array:
    """Return the first powers of 2, int64 [count]: 1, 2, 4, ..."""
    return np.left_shift(np.int64(1), np.arange(count))


def shift_right(g: Builder, x: Value, bits: int) -> Value:
    """Return x >> bits. Div rounds towards 0, so Mod first subtracts the remainder."""
    if not bits:
        return x
    step = g.scalar(1 << bits, DType.INT64)
    return g.Div(g.Sub(x, g.Mod(x, step)), step)


def bit_length(g: Builder, x: Value, most: int) -> Value:
    """Return the bit length of non-negative numbers [n]: the number of powers of 2 up to each."""
    reached = g.GreaterOrEqual(g.Unsqueeze(x, g.ints([1])), powers(most))
    return g.reduce("ReduceSum", g.cast(reached, DType.INT64), [1], keepdims=False)
