"""The names that a user-defined operator needs; see docs/adding-an-operator.md.

A user-defined operator begins with

>>> from tflite2onnx.operators import Builder, Category, Operator, Value, View, register
>>> @register("MyOperator")
... class MyOperator(Operator): ...
"""

from tflite2onnx.builder.builder import NeedsReshape as NeedsReshape
from tflite2onnx.errors import (
    OperatorError as OperatorError,
    RegistrationError as RegistrationError,
)
from tflite2onnx.extensions import (
    OfferedPass as OfferedPass,
    offer_operators as offer_operators,
    offer_passes as offer_passes,
)
from tflite2onnx.graph import Op as Op, Options as Options
from tflite2onnx.layout import (
    Axes as Axes,
    Frame as Frame,
    Order as Order,
    axis_names as axis_names,
    pin_operand as pin_operand,
)
from tflite2onnx.op.base import (
    Builder as Builder,
    Category as Category,
    Operator as Operator,
    OutputShape as OutputShape,
    Unknown as Unknown,
    Value as Value,
    View as View,
)
from tflite2onnx.op.common.checks import (
    axis_of as axis_of,
    check_element_count as check_element_count,
    expect as expect,
    expect_type as expect_type,
    integer as integer,
    ints as ints,
)
from tflite2onnx.op.elementwise.arithmetic import Elementwise as Elementwise, Row as Row
from tflite2onnx.op.registry import register as register, unregister as unregister
from tflite2onnx.op.traits import (
    AnySizes as AnySizes,
    DynamicShape as DynamicShape,
    Foldable as Foldable,
    HasInternalState as HasInternalState,
    IndexesAxes as IndexesAxes,
    Movement as Movement,
    Pointwise as Pointwise,
    RunsSubgraphs as RunsSubgraphs,
    TakesRanges as TakesRanges,
)
from tflite2onnx.quantization.declarations import (
    Integers as Integers,
    Moves as Moves,
    Product as Product,
    Real as Real,
)
from tflite2onnx.tensor import (
    Array as Array,
    DType as DType,
    Quantization as Quantization,
    Shape as Shape,
    Tensor as Tensor,
)
from tflite2onnx.utils.dimension import Dimension as Dimension
