"""QUANTIZE and FAKE_QUANT: real numbers to stored integers."""

from __future__ import annotations

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator, OperatorError
from tflite2onnx.quantize import is_quantized


class Quantize(Operator):
    """QUANTIZE: the driver quantizes what an operator writes, and there is nothing else to do.

    Integers of another scale or type are a pair as well. LiteRT rounds halves away from zero,
    ONNX to even: one step apart on exact ties.
    """

    codes = ("QUANTIZE",)
    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def check(self) -> None:
        source, target = self.input(0), self.output
        if not is_quantized(target) or not (source.dtype.is_float or source.quantization):
            message = f"{source.dtype.label} cannot become {target.dtype.label} without a scale"
            raise OperatorError(message)
        if source.shape != target.shape:
            message = f"{list(source.shape)} cannot become {list(target.shape)}"
            raise OperatorError(message)

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return x.value
