"""The names that a user-defined operator needs; see docs/adding-an-operator.md.

A user-defined operator begins with

>>> from tflite2onnx.operators import Builder, Category, Operator, Value, View, register
>>> @register("MyOperator")
... class MyOperator(Operator): ...

`sizes` has what operators with dynamic sizes need more, and `custom_options` what reads options.
"""

from tflite2onnx.builder.builder import (
    Body as Body,
    NeedsReshape as NeedsReshape,
    Operand as Operand,
)
from tflite2onnx.builder.nodes import require_onnx_type as require_onnx_type
from tflite2onnx.errors import (
    OperatorError as OperatorError,
    RegistrationError as RegistrationError,
)
from tflite2onnx.graph import Op as Op, Options as Options
from tflite2onnx.layout import (
    Axes as Axes,
    Frame as Frame,
    Order as Order,
    axis_names as axis_names,
    pin_operand as pin_operand,
)
from tflite2onnx.op import OPERATORS
from tflite2onnx.op.base import (
    Builder as Builder,
    Category as Category,
    DataDependentSize as DataDependentSize,
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
    expect_input_count as expect_input_count,
    expect_output_count as expect_output_count,
    expect_rank as expect_rank,
    expect_type as expect_type,
    integer as integer,
    ints as ints,
    read_count as read_count,
    read_shape as read_shape,
)
from tflite2onnx.op.common.leading_axis import prepend_axis as prepend_axis
from tflite2onnx.op.common.unsigned import UnsignedInt as UnsignedInt
from tflite2onnx.op.elementwise.arithmetic import (
    Elementwise as Elementwise,
    Emit as Emit,
    Row as Row,
    emit_node as emit_node,
)
from tflite2onnx.op.movement.bitcast import split_words as split_words
from tflite2onnx.op.registry import register as register, unregister as unregister
from tflite2onnx.op.traits import (
    AnySizes as AnySizes,
    ComputesMatrices as ComputesMatrices,
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
from tflite2onnx.quantization.storage import is_quantized as is_quantized, same_scale as same_scale
from tflite2onnx.tensor import (
    Array as Array,
    DType as DType,
    Quantization as Quantization,
    Shape as Shape,
    Tensor as Tensor,
)
from tflite2onnx.utils.dimension import Dimension as Dimension


def extend_row(code: str, types: str) -> Row:
    """Return the row of a builtin elementwise operator, for other element types of its inputs.

    `types` are names of element types between blanks, as in `Row`. Raises KeyError for other
    operators.
    """
    row: Row = OPERATORS[code].rows[code]
    return Row(row.emit, types, row.numpy)
