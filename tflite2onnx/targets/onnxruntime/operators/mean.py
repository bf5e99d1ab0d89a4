"""MEAN of floats over axes before the last one, as a product of matrices.

ONNX Runtime's ReduceMean adds columns without vectors (`FastReduceKRK` in
`cpu/reduction/reduction_ops.cc`): the mean of 1,500 rows of 256 numbers takes 616 us, and a product
with a row of 1/1500 takes 56; 49 rows of 1,280 take 52 and 4 (AMD EPYC, family 25, model 17, one
thread). The mean of an image with channels first is GlobalAveragePool or ReduceMean of rows.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, NeedsReshape, Value, View
from tflite2onnx.op.reduction import reduce
from tflite2onnx.quantization.storage import is_quantized
from tflite2onnx.targets.onnxruntime.costs import GAIN, Terms, explain_nodes, round_up
from tflite2onnx.tensor import DType

_VECTOR = 16  # numbers that are multiplied at once


class Mean(reduce.Reduction):
    """MEAN."""

    codes = ("MEAN",)

    def emit(self, g: Builder, y: View, x: View, axes_input: View) -> Value | NeedsReshape:
        axes = [] if self.has_data_dependent_shape else sorted(map(x.axis, self._axes))
        if not _is_product(x, axes):
            return super().emit(g, y, x, axes_input)
        first, end = axes[0], axes[-1] + 1
        rows, columns = prod(x.shape[first:end]), prod(x.shape[end:])
        weights = g.constant(np.full((1, rows), 1 / rows, np.float32))
        product = g.MatMul(weights, x.reshape((*x.sizes[:first], rows, columns)))
        sizes = (*x.sizes[:first], 1, columns)
        return product if sizes == y.sizes else NeedsReshape(g.annotate(product, y.dtype, sizes))


def _is_product(x: View, axes: Sequence[int]) -> bool:
    """Return whether a product is faster: neighbouring axes of known sizes before rows."""
    if not axes or axes != list(range(axes[0], axes[-1] + 1)) or x.dtype is not DType.FLOAT32:
        return False
    if is_quantized(x.tensor) or any(isinstance(size, str) for size in x.sizes[min(axes[0], 1) :]):
        return False
    rows, columns = prod(x.shape[axes[0] : axes[-1] + 1]), prod(x.shape[axes[-1] + 1 :])
    product = Terms(loads=rows * round_up(columns, _VECTOR))
    mean = Terms(loads=rows * columns)
    return rows > 1 < columns and not explain_nodes([("row", product)], [("mean", mean)], GAIN)
