"""Elementwise operators: tables, one line each."""

from __future__ import annotations

from typing import ClassVar

from tflite2onnx.builder import Builder, Value, View
from tflite2onnx.op.base import Category, Operator


class Unary(Operator):
    """One input, one ONNX node, no attribute."""

    nodes: ClassVar[dict[str, str]] = {
        "ABS": "Abs",
        "LOGISTIC": "Sigmoid",
        "SQRT": "Sqrt",
    }
    codes = tuple(nodes)
    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.node(self.nodes[self.op.code], x)


class Binary(Operator):
    """Two inputs that broadcast, one ONNX node."""

    nodes: ClassVar[dict[str, str]] = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}
    codes = tuple(nodes)
    category = Category.TRANSPARENT
    tflite = "..., ... -> ..."
    broadcasts = True

    def emit(self, g: Builder, y: View, a: View, b: View) -> Value:
        return g.node(self.nodes[self.op.code], a, b)
