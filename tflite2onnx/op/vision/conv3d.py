"""3-D convolutions, over images with a depth axis."""

from __future__ import annotations

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect, expect_type, ints
from tflite2onnx.op.common.windows import Window, window_of
from tflite2onnx.op.vision.conv import Convolution
from tflite2onnx.quantize import Product
from tflite2onnx.tensor import DType, Shape


class VolumeConvolution(Convolution):
    """Base class of the 3-D convolutions, which have one group and float32 tensors only."""

    def window(self) -> Window:
        return window_of(self.options, *_volume(self.sizes(1)))

    def check_operands(self) -> None:
        super().check_operands()
        data, weights, _ = self.product.operands
        channels, filters = self.sizes(data)["C"], self.sizes(weights)
        if channels != filters["I"]:
            raise OperatorError(
                f"its input must have the {filters['I']} channels of its filters, got {channels}"
            )
        for tensor in (self.input(data), self.input(weights)):
            expect_type(tensor, (DType.FLOAT32,))


class Conv3D(VolumeConvolution):
    """CONV_3D: a 3-D convolution."""

    codes = ("CONV_3D",)
    tflite = "NDHWC, DHWIO, O -> NDHWC"
    onnx = "NCDHW, OIDHW, O -> NCDHW"

    def check(self) -> None:
        self.check_operands()
        x, filters = self.sizes(0), self.sizes(1)
        shape = (x["N"], *self.window().steps(_volume(x)), filters["O"])
        expect(self.output, shape, DType.FLOAT32)

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        return g.Conv(x, w, b, **self.window().attributes(_volume(self.sizes(0))))


class Conv3DTranspose(VolumeConvolution):
    """CONV_3D_TRANSPOSE: a transposed 3-D convolution, whose output shape is an input."""

    codes = ("CONV_3D_TRANSPOSE",)
    tflite = ", DHWOI, NDHWC, O -> NDHWC"
    onnx = ", IODHW, NCDHW, O -> NCDHW"
    product = Product(2, 1, 3, folds=True)

    def check(self) -> None:
        self.check_operands()
        x, filters, y = self.sizes(2), self.sizes(1), self.sizes(~0)
        expect(self.output, ints(self, 0), DType.FLOAT32)
        expect(self.output, (x["N"], *_volume(y), filters["O"]), DType.FLOAT32)
        if self.window().steps(_volume(y)) != _volume(x):
            raise OperatorError(
                f"no window moves from an output of {_volume(y)} to its input of {_volume(x)}; "
                f"check the output shape, the strides and the padding"
            )

    def emit(
        self, g: Builder, y: View, shape: View, w: View, x: View, b: View | None = None
    ) -> Value:
        window, volume = self.window(), _volume(self.sizes(~0))
        rest = window.count_unreached(volume)
        return g.ConvTranspose(x, w, b, output_padding=rest, **window.attributes(volume))


def _volume(sizes: dict[str, int]) -> Shape:
    """Return (depth, height, width)."""
    return sizes["D"], sizes["H"], sizes["W"]
