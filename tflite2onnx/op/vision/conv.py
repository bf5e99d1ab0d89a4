"""Convolutions."""

from __future__ import annotations

from typing import ClassVar

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect, expect_real, ints
from tflite2onnx.op.common.hybrid import CHEAP, is_hybrid, symmetric
from tflite2onnx.op.common.windows import ImageOperator, Window, image_of, open_image_of, window_of
from tflite2onnx.quantize import bias_storage


class Convolution(ImageOperator):
    """What all convolutions have in common; the biases may be absent."""

    matmul_operands: ClassVar[tuple[int, int, int]]
    dequantizes_weights_at_load = True

    def window(self) -> Window:
        """Return the window, which is as large as a filter."""
        filters = self.sizes(1)
        return window_of(self.options, filters["H"], filters["W"])

    def check_operands(self) -> None:
        """Raise OperatorError if types, channels or biases do not fit together."""
        data, weights, bias = self.matmul_operands
        x, w = self.sizes(data), self.sizes(weights)
        groups, rest = divmod(x["C"], w["I"])
        if rest or w["O"] % groups:
            raise OperatorError(f"{x['C']} channels for {w['O']} filters of {w['I']} channels each")
        expect_real(self.input(data), self.input(weights))
        if bias < len(self.op.inputs) and self.op.inputs[bias] is not None:
            if self.sizes(bias)["O"] != w["O"]:
                raise OperatorError(f"{self.sizes(bias)['O']} biases for {w['O']} filters")
            if bias_storage(self.input(data), self.input(weights), self.input(bias)) is None:
                expect_real(self.input(bias))


class Conv2D(Convolution):
    """CONV_2D: how many groups there are follows from the channels alone."""

    codes = ("CONV_2D",)
    tflite = "NHWC, OHWI, O -> NHWC"
    onnx = "NCHW, OIHW, O -> NCHW"
    matmul_operands = (0, 1, 2)

    def check(self) -> None:
        self.check_operands()
        x, w = self.sizes(0), self.sizes(1)
        made = (x["N"], *self.window().steps((x["H"], x["W"])), w["O"])
        expect(self.output, made, self.input(0).dtype)

    def emit(self, g: Builder, y: View, x: View, w: View, b: View | None = None) -> Value:
        groups = x.size("C") // w.size("I")
        read = (
            x
            if g.float_only or not self._quantizes_data
            else symmetric(g, x.value, x.shape).dequantize(g)
        )
        return g.Conv(read, w, b, group=groups, **self.window().open_attributes(open_image_of(x)))

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        letter = self.axis_letters(operand)[axis]
        # The hybrid kernel's scales are those of one image, or of each.
        return letter in "HW" or (letter == "N" and not self._quantizes_data)

    @property
    def is_depthwise(self) -> bool:
        channels, filters = self.sizes(0)["C"], self.sizes(1)
        return channels > 1 == filters["I"] and channels == filters["O"]

    @property
    def _quantizes_data(self) -> bool:
        """Whether the data is quantized as the hybrid kernel does.

        With one scale for all weights that is so coarse, 255 steps around 0 for an image, that
        results depend on it (is_hybrid_per_channel in conv.cc). Else the data stays real.
        """
        x, w, y = self.input(0), self.input(1), self.output
        scale = w.quantization.scale if w.quantization else ()
        one = len(set(scale)) == 1 and x.shape[-1] == w.shape[-1]
        each = w.elements * y.elements // max(y.shape[-1] * x.elements, 1)
        return is_hybrid(x, w) and one and each >= CHEAP


class DepthwiseConv2D(Conv2D):
    """DEPTHWISE_CONV_2D: one group for each channel.

    Filter c * multiplier + m reads channel c, as in ONNX. The multiplier follows from the shapes;
    the option that names it is wrong in old files.
    """

    codes = ("DEPTHWISE_CONV_2D",)
    tflite = "NHWC, IHWO, O -> NHWC"

    def check(self) -> None:
        if self.sizes(1)["I"] != 1:
            raise OperatorError(
                f"its weights are {list(self.input(1).shape)}, but the first axis must be 1"
            )
        super().check()


class TransposeConv(Convolution):
    """TRANSPOSE_CONV: the convolution that would make its input of its output, backwards.

    Several output sizes lead to one input size. The one wanted is given, and tells the padding,
    or how many of the last rows and columns no window reaches (ONNX's `output_padding`).
    """

    codes = ("TRANSPOSE_CONV",)
    tflite = ", OHWI, NHWC, O -> NHWC"
    onnx = ", IOHW, NCHW, O -> NCHW"
    matmul_operands = (2, 1, 3)

    def check(self) -> None:
        self.check_operands()
        x, w, y = self.sizes(2), self.sizes(1), self.sizes(~0)
        if x["C"] != w["I"]:
            raise OperatorError(f"{x['C']} channels for filters of {w['I']} channels each")
        expect(self.output, (x["N"], y["H"], y["W"], w["O"]), self.input(2).dtype)
        if self.window().steps((y["H"], y["W"])) != (x["H"], x["W"]):
            raise OperatorError(f"{x['H'], x['W']} cannot become {y['H'], y['W']}")
        # One that is computed can only be what the file says: hardly another size fits the input.
        if self.input(0).data is not None:
            expect(self.output, ints(self, 0), self.output.dtype)

    def emit(
        self, g: Builder, y: View, shape: View, w: View, x: View, b: View | None = None
    ) -> Value:
        window, image = self.window(), image_of(y)
        rest = window.count_unreached(image)
        return g.ConvTranspose(x, w, b, output_padding=rest, **window.attributes(image))
