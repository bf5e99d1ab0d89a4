"""Functions of 8-bit and 16-bit integers, as tables of their values."""

from tflite2onnx.op.base import Builder, Category, Operator, Value, View
from tflite2onnx.op.common.checks import expect
from tflite2onnx.op.common.interpolated_tables import interpolate_table
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import DType


def look_up(g: Builder, table: Value | View, x: View, index: Value | None = None) -> Value:
    """Return the elements of a table [n] at 8-bit integers; negative integers are at its end.

    An `index` of int32 for each element of `x` may be given in place of the integers.

    It emits GatherElements, because kernels of Gather copy each element as a block, which takes
    longer (docs/runtime-faults.md).
    """
    flat = g.reshape(g.cast(x, DType.INT32) if index is None else index, [-1])
    elements = g.GatherElements(table, flat, axis=0)
    if any(isinstance(size, str) for size in x.sizes):
        return g.reshape_to_sizes(elements, g.Shape(x))
    return g.reshape(elements, x.sizes)


_TABLE_SIZES = {DType.INT8: 256, DType.INT16: 513}


class IntegerTable(Operator):
    """Table: a function of stored integers, as a table of its values.

    The table for int16 has every 128th value; others are interpolated and rounded half up.
    """

    codes = ("Table",)
    category = Category.TRANSPARENT
    operands = "T:int8|int16 [...], T [n] -> T [...]"
    quantization = Integers(in_file_types=True)

    def check(self) -> None:
        x, table = self.input(0), self.input(1)
        expect(table, (_TABLE_SIZES[x.dtype],), x.dtype)

    def emit(self, g: Builder, y: View, x: View, table: View) -> Value:
        if x.dtype is DType.INT8:  # in the kernel, negative numbers are at the end of the table
            return look_up(g, table, x)
        return interpolate_table(g, table, x)
