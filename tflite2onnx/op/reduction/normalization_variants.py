"""RMS_NORMALIZATION and GROUP_NORMALIZATION: the results of passes that recognise them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.builder.opsets import first_opset
from tflite2onnx.layout import Axes, Frame, axis_names
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.tensor import DType, Sizes


class RmsNormalization(DynamicShape):
    """RMS_NORMALIZATION: x / sqrt(mean of the squares of x along the last axis + epsilon) * scale.

    The scale, [C], belongs to the last axis, whose size is fixed.
    """

    codes = ("RMS_NORMALIZATION",)
    operands = "float32 [... n], float32 [n] -> float32"
    keeps_shape = True
    tflite = "... -> ..."

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        return axis < self.input(0).rank - 1

    def frames(self) -> Sequence[Frame]:
        names = axis_names(self.input(0).rank)

        def is_legal(label: Axes) -> bool:
            return label[-1] == names[-1]

        return [Frame({0: names, ~0: names}, names, legal=is_legal)]

    def emit(self, g: Builder, y: View, x: View, scale: View) -> Value:
        epsilon = float(self.options.epsilon)
        if g.opset >= first_opset("RMSNormalization"):
            return g.RMSNormalization(x, scale, axis=-1, epsilon=epsilon)
        # ONNX Runtime makes one node of these nodes.
        squares = g.Pow(x, g.scalar(2, DType.FLOAT32))
        mean = g.reduce("ReduceMean", squares, [x.rank - 1], keepdims=True)
        root = g.Sqrt(g.Add(mean, g.scalar(epsilon, DType.FLOAT32)))
        return g.Mul(g.Div(x, root), scale)


class GroupNormalization(ImageOperator):
    """GROUP_NORMALIZATION: (x - mean) / sqrt(variance + epsilon) * scale + bias, of an image.

    The mean and the variance are those of a group of channels, over all pixels. The option `groups`
    is the number of groups. The scale and the bias, [C], may be missing.
    """

    codes = ("GROUP_NORMALIZATION",)
    keeps_shape = True
    operands = "float32 [... channels], float32? [channels], float32? [channels] -> float32"

    def check(self) -> None:
        groups, channels = self.options.groups, self.sizes(0)["C"]
        if groups < 1 or channels % groups:
            raise OperatorError(f"groups must divide {channels} channels, got {groups}")

    def emit(
        self, g: Builder, y: View, x: View, scale: View | None = None, bias: View | None = None
    ) -> Value:
        # ONNX Runtime has no kernel of GroupNormalization: it runs 29 nodes instead.
        groups = self.options.groups
        fixed = x.tensor.symbols.keys() <= {0}
        rows: Sizes = (x.sizes[0], groups, prod(x.shape[1:]) // groups if fixed else -1)
        one, zero = (g.constant(np.full(groups, n, np.float32)) for n in (1, 0))
        epsilon = float(self.options.epsilon)
        instances = g.InstanceNormalization(g.reshape(x, rows), one, zero, epsilon=epsilon)
        value = g.reshape(instances, x.sizes)
        sizes = (x.size("C"), 1, 1)
        value = value if scale is None else g.Mul(value, scale.reshape(sizes))
        return value if bias is None else g.Add(value, bias.reshape(sizes))
