"""Convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect, expect_real, ints
from tflite2onnx.op.common.hybrid import symmetric
from tflite2onnx.op.common.windows import (
    ImageOperator,
    Window,
    dynamic_image_of,
    image_of,
    window_of,
)
from tflite2onnx.quantize import Product, Reading, bias_storage, quantizes_data
from tflite2onnx.tensor import DType


class Convolution(ImageOperator):
    """Base class of the convolutions; the biases are optional."""

    product: ClassVar[Product] = Product(0, 1, 2, folds=True)

    @property
    def quantization(self) -> Product:
        return self.product

    def window(self) -> Window:
        """Return the window, which has the size of a filter."""
        filters = self.sizes(1)
        return window_of(self.options, filters["H"], filters["W"])

    def check_operands(self) -> None:
        """Raise OperatorError if types, channels or biases do not match."""
        data, weights, bias = self.product.operands
        x, w = self.sizes(data), self.sizes(weights)
        groups, rest = divmod(x["C"], w["I"])
        if rest or w["O"] % groups:
            raise OperatorError(
                f"the {x['C']} channels of its input must be a multiple of the {w['I']} channels "
                f"of a filter, and the {w['O']} filters a multiple of the groups"
            )
        expect_real(self.input(data), self.input(weights))
        if bias < len(self.op.inputs) and self.op.inputs[bias] is not None:
            if self.sizes(bias)["O"] != w["O"]:
                raise OperatorError(
                    f"it must have as many biases as filters, got {self.sizes(bias)['O']} biases "
                    f"for {w['O']} filters"
                )
            if bias_storage(self.input(data), self.input(weights), self.input(bias)) is None:
                expect_real(self.input(bias))


class Conv2D(Convolution):
    """CONV_2D: a 2-D convolution, whose number of groups follows from the channels."""

    codes = ("CONV_2D",)
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, OIHW, O -> NCHW"

    def check(self) -> None:
        self.check_operands()
        x, w = self.sizes(0), self.sizes(1)
        shape = (x["N"], *self.window().steps((x["H"], x["W"])), w["O"])
        expect(self.output, shape, self.input(0).dtype)

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        groups = x.size("C") // w.size("I")
        data = (
            x
            if x.plan.reading is not Reading.DYNAMIC
            else symmetric(g, x.value, x.shape).dequantize(g)
        )
        return g.Conv(
            data, w, b, group=groups, **self.window().dynamic_attributes(dynamic_image_of(x))
        )

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        letter = self.axis_letters(operand)[axis]
        # The hybrid kernel computes one scale per image, so the batch must be static.
        return letter in "HW" or (letter == "N" and not quantizes_data(self))

    @property
    def quantization(self) -> Product:
        channels, filters = self.sizes(0)["C"], self.sizes(1)
        depthwise = channels > 1 == filters["I"] and channels == filters["O"]
        return replace(self.product, hybrid="images", depthwise=depthwise)


class DepthwiseConv2D(Conv2D):
    """DEPTHWISE_CONV_2D: a 2-D convolution with one group for each channel.

    Filter c * multiplier + m reads channel c, as in ONNX. The multiplier is computed from the
    shapes, because the option depth_multiplier is wrong in old files.
    """

    codes = ("DEPTHWISE_CONV_2D",)
    tflite = "NHWC, IHWO, O -> NHWC"

    def check(self) -> None:
        if self.sizes(1)["I"] != 1:
            raise OperatorError(
                f"the first axis of its weights must be 1, got {list(self.input(1).shape)}"
            )
        scale = self.input(1).quantization
        if self.input(0).dtype is DType.INT8 and scale is not None and scale.zero_point.any():
            raise OperatorError(  # LiteRT's kernel ignores another zero point
                f"{self.input(1).name} must have the zero point 0, because its data are int8"
            )
        super().check()


class TransposeConv(Convolution):
    """TRANSPOSE_CONV: the transpose of the convolution that maps its output to its input.

    Convolutions of several output sizes lead to the same input size, so the output shape is an
    input of the operator. It determines the padding, or the number of last rows and columns that
    no window reaches (ONNX's `output_padding`).
    """

    codes = ("TRANSPOSE_CONV",)
    tflite = ", OHWI, NHWC, O -> NHWC"
    onnx = ", IOHW, NCHW, O -> NCHW"
    product = Product(2, 1, 3, folds=True)

    def check(self) -> None:
        self.check_operands()
        x, w, y = self.sizes(2), self.sizes(1), self.sizes(~0)
        if x["C"] != w["I"]:
            raise OperatorError(
                f"its input must have the {w['I']} channels of its filters, got {x['C']}"
            )
        expect(self.output, (x["N"], y["H"], y["W"], w["O"]), self.input(2).dtype)
        if self.window().steps((y["H"], y["W"])) != (x["H"], x["W"]):
            raise OperatorError(
                f"no window moves from an output of {y['H'], y['W']} to its input of "
                f"{x['H'], x['W']}; check the output shape, the strides and the padding"
            )
        # A computed output shape is taken to equal the declared one: few others fit the input.
        if self.input(0).data is not None:
            expect(self.output, ints(self, 0), self.output.dtype)

    def emit(
        self, g: Builder, y: View, shape: View, w: View, x: View, b: View | None = None
    ) -> Value:
        window, image = self.window(), image_of(y)
        rest = window.count_unreached(image)
        return g.ConvTranspose(x, w, b, output_padding=rest, **window.attributes(image))
