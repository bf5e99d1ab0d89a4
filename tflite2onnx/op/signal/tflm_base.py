"""What the operators of TFLite Micro's front end have in common, and integers as they compute them.

Integers of 32 and 64 bits without sign are computed as int64 here, which holds whatever honest
signals make of them; what wraps around in the kernels wraps around here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value
from tflite2onnx.op.common.checks import check_element_count, expect
from tflite2onnx.tensor import Array, DType, Shape, Tensor

WORD = 32  # bits


class Signal(Operator):
    """An operator of the front end: it computes with stored integers, along one axis."""

    custom = True
    category = Category.TERMINATE
    computes_on_stored_integers = True

    def option(self, name: str, low: int = 0, high: int = WORD - 1) -> int:
        """Return an option; OperatorError if it is less, or more. The kernels shift by most."""
        number = int(self.options.get(name, 0))
        if not low <= number <= high:
            raise OperatorError(f"its {name} is {number}")
        return number

    def vector(self, index: int, dtype: DType) -> int:
        """Return the length of an input of one axis; OperatorError if it is something else."""
        tensor = self.input(index)
        size = tensor.elements
        check_element_count(size)
        if not size:
            raise OperatorError(f"{tensor.name} is empty")
        expect(tensor, (size,), dtype)
        return size

    def state_tensor(self, what: str, shape: Shape, dtype: DType) -> Tensor:
        """Return a tensor for `internal_state`, which begins as 0."""
        return Tensor(f"{self.output.name}/{what}", shape, dtype)


def scalars(g: Builder) -> Callable[[int], Value]:
    """Return a function that makes a constant of an integer."""
    return lambda number: g.scalar(number, DType.INT64)


def emit_maximum(g: Builder, a: Value, b: Value) -> Value:
    """Return the larger one of each two."""
    return g.in_compute_type("Max", DType.INT64, a, b)


def emit_minimum(g: Builder, a: Value, b: Value) -> Value:
    """Return the smaller one of each two."""
    return g.in_compute_type("Min", DType.INT64, a, b)


def powers(count: int) -> Array:
    """Return so many powers of 2, from 1 on."""
    return np.left_shift(np.int64(1), np.arange(count))


def shift_right(g: Builder, x: Value, bits: int) -> Value:
    """Return x >> bits: Div rounds to 0, but not where Mod has taken away what is left over."""
    if not bits:
        return x
    step = g.scalar(1 << bits, DType.INT64)
    return g.Div(g.Sub(x, g.Mod(x, step)), step)


def bit_length(g: Builder, x: Value, most: int) -> Value:
    """Return how many bits numbers [n] take that are not negative: as many powers are no larger."""
    above = g.GreaterOrEqual(g.Unsqueeze(x, g.ints([1])), powers(most))
    return g.reduce("ReduceSum", g.cast(above, DType.INT64), [1], keepdims=False)
