"""Models whose tensors all have one element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tests.support import Build, Tensor


class OneType(Build):
    """A model whose tensors have one type, and one scale if it is quantized."""

    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        quantized = {"scale": 0.05, "zero_point": 3} if dtype != "float32" else {}
        self.fields: dict[str, Any] = {"dtype": dtype, **quantized}

    def apply(self, code: str, inputs: list[Any], shape: Sequence[int], **options: Any) -> Tensor:
        """Add an operator with one output."""
        (y,) = self.op(code, inputs, [self.tensor(shape, **self.fields)], **options)
        return y

    def integers(self, numbers: ArrayLike) -> Tensor:
        return self.constant(np.array(numbers, np.int32))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        return self.apply("RESHAPE", [x, self.integers(shape)], shape, new_shape=[*shape])
