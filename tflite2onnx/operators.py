"""The names that a user-defined operator needs; see docs/adding-an-operator.md.

A user-defined operator begins with

>>> from tflite2onnx.operators import Builder, Category, Operator, Value, View, register
>>> @register("MyOperator")
... class MyOperator(Operator): ...
"""

from tflite2onnx.builder.builder import NeedsReshape
from tflite2onnx.errors import OperatorError, RegistrationError
from tflite2onnx.graph import Op, Options
from tflite2onnx.layout import Axes, Frame, Order, axis_names, pin_operand
from tflite2onnx.op.base import (
    Builder,
    Category,
    Operator,
    OutputShape,
    Unknown,
    Value,
    View,
)
from tflite2onnx.op.common.checks import (
    axis_of,
    check_element_count,
    expect,
    expect_type,
    integer,
    ints,
)
from tflite2onnx.op.registry import register, unregister
from tflite2onnx.op.traits import (
    DynamicShape,
    Foldable,
    HasInternalState,
    IndexesAxes,
    RunsSubgraphs,
    TakesRanges,
)
from tflite2onnx.quantization.declarations import Integers, Moves, Product, Real
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Tensor
from tflite2onnx.utils.dimension import Dimension

# Old names, for operators that were written for earlier versions.
Unshaped = NeedsReshape
affordable = check_element_count
pinned = pin_operand

__all__ = [
    "Array",
    "Axes",
    "Builder",
    "Category",
    "DType",
    "Dimension",
    "DynamicShape",
    "Foldable",
    "Frame",
    "HasInternalState",
    "IndexesAxes",
    "Integers",
    "Moves",
    "NeedsReshape",
    "Op",
    "Operator",
    "OperatorError",
    "Options",
    "Order",
    "OutputShape",
    "Product",
    "Quantization",
    "Real",
    "RegistrationError",
    "RunsSubgraphs",
    "Shape",
    "TakesRanges",
    "Tensor",
    "Unknown",
    "Unshaped",
    "Value",
    "View",
    "affordable",
    "axis_names",
    "axis_of",
    "check_element_count",
    "expect",
    "expect_type",
    "integer",
    "ints",
    "pin_operand",
    "pinned",
    "register",
    "unregister",
]
