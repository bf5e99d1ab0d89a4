"""Nodes for operators that RKNN refuses, or rounds otherwise."""

from collections.abc import Sequence

from tflite2onnx.op.base import View
from tflite2onnx.op.reduction.reduce import Reduction
from tflite2onnx.targets import averages


class UnpooledMean(Reduction):
    """MEAN: RKNN refuses a Gemm or Softmax after GlobalAveragePool and Reshape."""

    def _is_pooling(self, x: View, axes: Sequence[int]) -> bool:
        return False


PATHS = {"MEAN": __name__, **averages.PATHS}
