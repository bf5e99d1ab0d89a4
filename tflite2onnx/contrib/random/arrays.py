"""Compute in numpy what the nodes of a builder compute, to fold an operator by its own `emit`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tflite2onnx.tensor import Array, DType

_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "Abs": np.abs,
    "Add": np.add,
    "ArgMax": lambda x, axis, keepdims: x.argmax(axis, keepdims=bool(keepdims)),
    "BitShift": lambda x, n, direction: x << n if direction == "LEFT" else x >> n,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseXor": np.bitwise_xor,
    "Concat": lambda *x, axis: np.concatenate(x, axis),
    "Cos": np.cos,
    "CumSum": lambda x, axis: x.cumsum(axis),
    "Equal": np.equal,
    "GatherElements": np.take_along_axis,
    "Less": np.less,
    "Log": np.log,
    "Max": np.maximum,
    "Mod": np.remainder,
    "Mul": np.multiply,
    "Sin": np.sin,
    "Slice": lambda x, first, last, axes: x.take(np.arange(*first, *last), *axes),
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
}


class Arrays:
    """The methods of a builder that `emit` of a folded operator may call; values are arrays."""

    def __getattr__(self, op_type: str) -> Callable[..., Array]:
        return partial(self.node, op_type)

    def node(self, op_type: str, *inputs: Array, **attributes: Any) -> Array:  # noqa: ANN401
        return _FUNCTIONS[op_type](*inputs, **attributes)

    def add_with_casts(self, op_type: str, _: DType, *inputs: Array) -> Array:
        return self.node(op_type, *inputs)

    def constant(self, data: Array) -> Array:
        """Return an array itself."""
        return data

    def ints(self, items: Sequence[int]) -> Array:
        return np.array(items, np.int64)

    def scalar(self, number: float, dtype: DType) -> Array:
        return np.array(number, dtype.numpy)

    def cast(self, x: Array, dtype: DType) -> Array:
        return x.astype(dtype.numpy)

    def recast(self, x: Array, source: DType, target: DType) -> Array:
        return self.cast(x, target)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(shape)
