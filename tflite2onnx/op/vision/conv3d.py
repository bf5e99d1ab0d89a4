"""3-D convolutions, over images with a depth axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError, OutputShape
from tflite2onnx.op.common.checks import expect_type
from tflite2onnx.op.common.windows import Window, window_of
from tflite2onnx.op.vision.conv import Convolution, TransposedConvolution
from tflite2onnx.tensor import DType, Shape


class VolumeConvolution(Convolution):
    """Base class of the 3-D convolutions, which have one group and float32 tensors only."""

    def window(self) -> Window:
        return window_of(self.options, *_list_volume(self.sizes(1)))

    def check_operands(self) -> None:
        data, weights, _ = self.product.operands
        for tensor in (self.input(data), self.input(weights)):
            expect_type(tensor, (DType.FLOAT32,))
        super().check_operands()
        channels, filters = self.sizes(data)["C"], self.sizes(weights)
        if channels != filters["I"]:
            raise OperatorError(
                f"its input must have the {filters['I']} channels of its filters, got {channels}"
            )


class Conv3D(VolumeConvolution):
    """CONV_3D: a 3-D convolution."""

    codes = ("CONV_3D",)
    dynamic_axes = "NDHW"
    tflite = "NDHWC, DHWIO, O -> NDHWC"
    onnx = "NCDHW, OIDHW, O -> NCDHW"

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.sizes(0)
        self.require_channels()
        return [(x["N"], *self.window().steps(_list_volume(x)), self.sizes(1)["O"])]

    def check(self) -> None:
        self.check_operands()
        expect_type(self.output, (DType.FLOAT32,))

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        image, window = self.window().place(g, x, x)
        return g.Conv(image, w, b, **window)


class Conv3DTranspose(TransposedConvolution, VolumeConvolution):
    """CONV_3D_TRANSPOSE: a transposed 3-D convolution, whose output shape is an input."""

    codes = ("CONV_3D_TRANSPOSE",)
    sizes_input = 0
    tflite = ", DHWOI, NDHWC, O -> NDHWC"
    onnx = ", IODHW, NCDHW, O -> NCDHW"


def _list_volume(sizes: Mapping[str, int]) -> Shape:
    """Return (depth, height, width)."""
    return sizes["D"], sizes["H"], sizes["W"]
