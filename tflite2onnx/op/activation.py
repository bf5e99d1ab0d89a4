"""Activation functions, fused into another operator or standing alone."""

from __future__ import annotations

from collections.abc import Callable

from tflite2onnx.builder import Builder, Value
from tflite2onnx.op.base import Category, Operator, OperatorError, View
from tflite2onnx.tensor import DType


def _clip(low: float, high: float) -> Callable[[Builder, Value | View, DType], Value]:
    def emit(g: Builder, x: Value | View, dtype: DType) -> Value:
        return g.Clip(x, g.scalar(low, dtype), g.scalar(high, dtype))

    return emit



# By the names of TFLite's ActivationFunctionType.
ACTIVATIONS: dict[str, Callable[[Builder, Value | View, DType], Value]] = {
    "RELU": lambda g, x, _: g.Relu(x),
    "RELU_N1_TO_1": _clip(-1, 1),
    "RELU6": _clip(0, 6),
    "TANH": lambda g, x, _: g.Tanh(x),
    "RELU_0_TO_1": _clip(0, 1),
}


def activate(g: Builder, name: str, x: Value | View, dtype: DType) -> Value:
    """Apply the activation with this name to a value of this type."""
    if name not in ACTIVATIONS:
        message = f"the activation function {name} has no kernel in LiteRT"
        raise OperatorError(message)
    return ACTIVATIONS[name](g, x, dtype)


class Activation(Operator):
    """An activation function that stands alone."""

    codes = ("RELU", "RELU_N1_TO_1", "RELU6", "RELU_0_TO_1", "TANH")
    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return activate(g, self.op.code, x, y.dtype)
