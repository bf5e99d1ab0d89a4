"""The names that operators need whose sizes are dynamic, or known at run time only.

A dynamic size is a `Dim` while shapes are inferred, and a name in the `Sizes` of a view when nodes
are made. Nodes compute it from the shapes of inputs.
"""

from tflite2onnx.op.common.checks import require_equal_shapes as require_equal_shapes
from tflite2onnx.op.common.runtime_shapes import (
    AXIS_END as AXIS_END,
    count_up as count_up,
    emit_size as emit_size,
    emit_sizes as emit_sizes,
    multiply_sizes as multiply_sizes,
    take_entries as take_entries,
)
from tflite2onnx.tensor import Sizes as Sizes
from tflite2onnx.utils.dimension import (
    Dim as Dim,
    has_dimensions as has_dimensions,
    infer_product as infer_product,
    is_known as is_known,
    require_equal as require_equal,
)
