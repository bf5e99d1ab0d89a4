"""Products of rows and the matrices of their experts, which a form makes."""

from collections.abc import Sequence

import numpy as np

from tflite2onnx.op.base import Builder, OutputShape, Value, View
from tflite2onnx.op.linear.experts import scan_experts
from tflite2onnx.op.traits import DynamicShape, MadeOperator
from tflite2onnx.tensor import DType


class ExpertProduct(MadeOperator, DynamicShape):
    """EXPERT_PRODUCT: each row [k] times the matrix [k, n] that its number chooses from a table.

    With `adj_y` the matrices are [n, k].
    """

    codes = ("EXPERT_PRODUCT",)
    operands = "float32 [N k], float32# [experts a b], index [N] -> float32 [N n]"
    tflite = "NK, EAB, N -> NM"
    dynamic_axes = "N"

    def infer_outputs(self) -> Sequence[OutputShape]:
        outputs = self.input(1).shape[-2 if self.options.adj_y else -1]
        return [(self.input(0).shape[0], outputs)]

    def emit(self, g: Builder, y: View, x: View, table: View, experts: View) -> Value:
        rows, numbers = x.value, g.recast(experts, experts.dtype, DType.INT32)

        def compute(g: Builder, where: Value, before: Value, weights: Sequence[Value]) -> Value:
            adjoint = 1 if self.options.adj_y else None
            made = g.Gemm(g.Gather(rows, where, axis=0), weights[0], transB=adjoint)
            return g.scatter_nd(before, g.Unsqueeze(where, [1]), made)

        count, outputs = y.sizes[0], self.output.shape[1]
        sizes = g.Concat(g.Shape(rows, start=0, end=1), [outputs], axis=0)
        zeros = g.Expand(g.scalar(0, DType.FLOAT32), sizes)
        chosen = g.reshape(numbers, (1, -1))
        matrices = [np.asarray(table.constant, np.float32)]
        return scan_experts(g, chosen, count, matrices, (zeros, (count, outputs)), compute)
