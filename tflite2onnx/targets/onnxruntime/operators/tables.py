"""Functions of stored integers as tables, which are looked up in images with channels last.

ONNX Runtime stores the channels of quantized networks last. A table is read by the elements of a
flat tensor, through whose Reshape no Transpose moves. In TFLite order the Transposes of the table
cancel those of the convolutions around it.
"""

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.layout import make_channels_first, make_identity
from tflite2onnx.op.base import Operator
from tflite2onnx.op.elementwise import activation, hard_swish
from tflite2onnx.op.indexing import integer_table

_LAST, _FIRST = make_identity(4), make_channels_first(4)


class _ChannelsLast(Operator):
    """Base of the classes below."""

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        x = xs[0]
        if x.storage.quantization is None or x.order != _FIRST:
            value: Value = super().emit(g, y, *xs)
            return value
        last, *operands = (v.with_order(_LAST) if v.order == _FIRST else v for v in (y, *xs))
        rows = g.annotate(super().emit(g, last, *operands), y.dtype, y.tensor.sizes)
        return g.Transpose(rows, perm=list(_FIRST))


class ChannelsLastHardSwish(_ChannelsLast, hard_swish.HardSwish):
    """HARD_SWISH."""


class ChannelsLastPRelu(_ChannelsLast, activation.PRelu):
    """PRELU."""


class ChannelsLastTable(_ChannelsLast, integer_table.IntegerTable):
    """Table."""
