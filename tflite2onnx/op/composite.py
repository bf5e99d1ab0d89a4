"""Operators that stand for a sub-graph."""

from __future__ import annotations

from tflite2onnx.inline import CALLS
from tflite2onnx.op.base import Category, Operator


class Call(Operator):
    """STABLEHLO_COMPOSITE and CALL: gone before anything is planned (see `inline`)."""

    codes = tuple(CALLS)
    category = Category.TERMINATE
