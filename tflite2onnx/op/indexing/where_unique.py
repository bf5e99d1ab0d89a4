"""WHERE and UNIQUE: operators with data-dependent output shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import (
    Builder,
    DataDependentSize,
    OperatorError,
    OutputShape,
    Value,
    View,
)
from tflite2onnx.op.traits import AnySizes, Foldable, Movement
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType


class Where(AnySizes, Foldable):
    """WHERE: the indices of all elements that are not 0, one in each row, in row-major order."""

    codes = ("WHERE",)
    operands = "bool|float32|int8|uint8|int32|uint32|int64 -> int64"
    quantization = Integers(in_file_types=True)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0)
        return [(DataDependentSize() if x.data is None else np.count_nonzero(x.data), x.rank)]

    def check(self) -> None:
        x = self.input(0)
        if not x.rank:
            raise OperatorError(f"{x.name} must have at least one axis, got none")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        # The kernel compares stored integers with 0, whatever the zero point is.
        return g.Transpose(g.NonZero(g.recast(x, x.dtype, DType.BOOL)), perm=[1, 0])

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.argwhere(inputs[0]).astype(np.int64)]


class Unique(Movement):
    """UNIQUE: the different elements by first occurrence, and the index of each input element."""

    codes = ("UNIQUE",)
    operands = "T:float32|int8|uint8|int16|int32|int64 [n] -> T, index"
    returns_tuple = True

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(DataDependentSize(),), self.input(0).shape]

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        compute_type = g.compute_type("Unique", x.dtype)
        values, _, indices = g.node_outputs(
            "Unique", 3, g.recast(x, x.dtype, compute_type), sorted=0
        )
        return (
            g.recast(values, compute_type, x.dtype),
            g.recast(indices, DType.INT64, ys[1].dtype),
        )
