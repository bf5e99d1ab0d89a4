"""BITCAST: the same bytes, taken for elements of another type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflite2onnx.builder.nodes import onnx_type
from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect
from tflite2onnx.op.traits import DynamicShape, Foldable
from tflite2onnx.tensor import Array, DType, Shape

_BYTE = 8
# Complex numbers are pairs by now; what is packed into less than a byte has no place of its own.
_TYPES = (
    DType.FLOAT32,
    DType.FLOAT16,
    DType.FLOAT64,
    DType.BFLOAT16,
    DType.BOOL,
    DType.INT8,
    DType.INT16,
    DType.INT32,
    DType.INT64,
    DType.UINT8,
    DType.UINT16,
    DType.UINT32,
    DType.UINT64,
)
_UNSIGNED = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}


class Bitcast(DynamicShape, Foldable):
    """The same bytes as elements of another type; a wider one is an axis more, lowest byte first.

    Integers are shifted and wrap around; only the bits of floats need a node that is as young as
    opset 26.
    """

    codes = ("BITCAST",)
    category = Category.TERMINATE
    computes_on_stored_integers = True
    dynamic_axes = "..."

    def check(self) -> None:
        x, y = self.input(0), self.output
        for tensor in (x, y):
            if tensor.dtype not in _TYPES:
                raise OperatorError(
                    f"{tensor.name} is {tensor.dtype.label}, whose bits are no whole bytes"
                )
        expect(y, self._shape(), y.dtype)

    def _shape(self) -> Shape:
        x, wide, narrow = self.input(0), self.input(0).dtype.bits, self.output.dtype.bits
        if wide >= narrow:
            return x.shape + ((wide // narrow,) if wide > narrow else ())
        if x.shape[-1:] != (narrow // wide,):
            raise OperatorError(f"the last axis of {list(x.shape)} does not hold {narrow} bits")
        return x.shape[:-1]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if x.dtype.bits == y.dtype.bits:
            return reinterpret_bits(g, x.value, x.dtype, y.dtype)
        source, target = (_UNSIGNED[dtype.bits] for dtype in (x.dtype, y.dtype))
        words = reinterpret_bits(g, x.value, x.dtype, source)
        turn = _split if x.dtype.bits > y.dtype.bits else join_words
        return reinterpret_bits(g, turn(g, words, source, target), target, y.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        x, kind = np.ascontiguousarray(inputs[0]), np.dtype(self.output.dtype.numpy)
        if x.dtype.itemsize < kind.itemsize:
            return [x.view(kind)[..., 0]]
        return [x.view(kind) if x.dtype.itemsize == kind.itemsize else x[..., None].view(kind)]


def reinterpret_bits(g: Builder, x: Value, have: DType, want: DType) -> Value:
    """Return the bits of a value as elements of another type of the same size."""
    if have is want:
        return x
    if have.is_float or want.is_float:
        return g.BitCast(x, to=onnx_type(want))
    return g.cast(x, want)


def words(g: Builder, x: Value, dtype: DType, bits: int) -> Value:
    """Return the bits of a value as uint64, with an axis more for those of words of this size."""
    unsigned = _UNSIGNED[dtype.bits]
    apart = _split(g, reinterpret_bits(g, x, dtype, unsigned), unsigned, _UNSIGNED[bits])
    return g.cast(apart, DType.UINT64)


def _shifts(wide: DType, narrow: DType) -> Array:
    return np.arange(0, wide.bits, narrow.bits, dtype=np.uint64)


def _split(g: Builder, words: Value, wide: DType, narrow: DType) -> Value:
    """Return each word as its parts, on an axis of their own."""
    apart = g.Unsqueeze(g.recast(words, wide, DType.UINT64), g.ints([-1]))
    return g.cast(g.BitShift(apart, _shifts(wide, narrow), direction="RIGHT"), narrow)


def join_words(g: Builder, parts: Value, narrow: DType, wide: DType) -> Value:
    """Return words whose parts are the last axis."""
    shifts = _shifts(wide, narrow)
    apart = g.BitShift(g.cast(parts, DType.UINT64), shifts, direction="LEFT")
    words = [g.Gather(apart, g.scalar(i, DType.INT64), axis=-1) for i in range(len(shifts))]
    while len(words) > 1:
        words = [g.Add(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]
    return g.recast(words[0], DType.UINT64, wide)
