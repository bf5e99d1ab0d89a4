"""BUCKETIZE: the number of boundaries that each element reaches."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.traits import Pointwise
from tflite2onnx.tensor import DType


class Bucketize(Pointwise):
    """BUCKETIZE: the number of sorted boundaries that are not larger than each element.

    Boundaries are float32, and integers are compared with them as float32. NaN is in the last
    bucket.
    """

    codes = ("BUCKETIZE",)
    operands = "float32|float64|int32|int64 -> int32"

    def check(self) -> None:
        boundaries = tuple(self.options.boundaries or ())
        if not all(a <= b for a, b in pairwise(boundaries)):  # not a number is neither
            raise OperatorError(f"boundaries must be sorted, got {list(boundaries)}")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        compute_type = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
        boundaries = np.asarray(self.options.boundaries or (), np.float32).astype(
            compute_type.numpy
        )
        if not boundaries.size:
            return g.Expand(g.scalar(0, DType.INT32), g.runtime_shape(y.sizes, x))
        column = g.Unsqueeze(g.recast(x, x.dtype, compute_type), g.ints([x.rank]))
        # GreaterOrEqual would be false for NaN.
        reached = g.Not(g.Less(column, boundaries))
        count = g.reduce("ReduceSum", g.cast(reached, DType.INT64), [x.rank], keepdims=False)
        return g.cast(count, DType.INT32)
