"""3-D pooling, for which TFLite has custom operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect_real, expect_type
from tflite2onnx.op.common.windows import ImageOperator, Window, window_from_lists
from tflite2onnx.op.vision.pool import average, average_quantization
from tflite2onnx.quantization.declarations import Declaration, Integers, Moves, averages
from tflite2onnx.tensor import DType, Shape

_AXES = 5


class _VolumePool(ImageOperator):
    """Base class of the 3-D pooling operators."""

    tflite = "NDHWC -> NDHWC"
    onnx = "NCDHW -> NCDHW"

    @cached_property
    def _window(self) -> Window:
        return window_from_lists(self.options, _AXES)

    def _read_volume(self) -> Shape:
        x = self.sizes(0)
        return x["D"], x["H"], x["W"]

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.sizes(0)
        return [(x["N"], *self._window.steps(self._read_volume()), x["C"])]

    def check(self) -> None:
        x = self.input(0)
        expect_real(x)
        if self.options.get("data_format", "NDHWC") != "NDHWC" or x.dtype is DType.UINT8:
            raise OperatorError(
                f"its data_format must be NDHWC and its input must not be uint8, got "
                f"{self.options.get('data_format')} and {x.dtype.label}"
            )
        expect_type(self.output, (x.dtype,))


class AvgPool3D(_VolumePool):
    """AvgPool3D: as AVERAGE_POOL_2D, with a depth axis."""

    codes = ("AvgPool3D",)
    steps: ClassVar[Mapping[str, int]] = {"AvgPool3D int16": 1}

    @property
    def quantization(self) -> Declaration:
        x = self.input(0)
        if x.dtype is DType.INT16:
            return Integers(kernel_writes=x.quantization)
        return averages(x, average_quantization(x.dtype, self._window.kernel))

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return average(g, x, x.dtype, self._window.attributes(self._read_volume()))


class MaxPool3D(_VolumePool):
    """MaxPool3D: as MAX_POOL_2D, with a depth axis."""

    codes = ("MaxPool3D",)
    quantization = Moves()

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.in_compute_type(
            "MaxPool", x.dtype, x, **self._window.attributes(self._read_volume())
        )
