"""BITCAST: the bytes of a tensor, read as elements of another type; the sign bit of floats."""

from collections.abc import Collection, Sequence

import numpy as np

from tflite2onnx.builder.nodes import require_onnx_type
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.made_options import SignOptions
from tflite2onnx.op.base import Builder, OperatorError, OutputShape, Value, View
from tflite2onnx.op.facts import Fact
from tflite2onnx.op.traits import AnySizes, Foldable, MadeOperator, Pointwise
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType

# Complex tensors are pairs of floats here. Elements of less than a byte are packed, and cannot be
# cast.
_TYPES = "bool|integers|float16|bfloat16|float32|float64"
_UNSIGNED = {8: DType.UINT8, 16: DType.UINT16, 32: DType.UINT32, 64: DType.UINT64}


class Bitcast(AnySizes, Foldable):
    """Reads the same bytes as elements of another type, lowest byte first.

    If the element sizes differ, the parts of the larger elements are an additional last axis.
    Integers are shifted and cast. Only the bits of floats need the node BitCast, of opset 26.
    """

    codes = ("BITCAST",)
    facts = (Fact.READS_STORED,)
    quantization = Integers(in_file_types=True)
    operands = f"{_TYPES} -> {_TYPES}"

    def infer_outputs(self) -> Sequence[OutputShape]:
        x, source_bits, narrow = self.input(0), self.input(0).dtype.bits, self.output.dtype.bits
        if source_bits >= narrow:
            return [x.shape + ((source_bits // narrow,) if source_bits > narrow else ())]
        if x.shape[-1:] != (narrow // source_bits,):
            raise OperatorError(
                f"the last axis of {x.name} must have {narrow // source_bits} elements, "
                f"got the shape {list(x.shape)}"
            )
        return [x.shape[:-1]]

    def find_mixed_axes(self, operand: int) -> Collection[int] | None:
        """Return the axis of the parts of an element, if they are joined."""
        return (-1,) if self.input(0).dtype.bits < self.output.dtype.bits else ()

    def emit(self, g: Builder, y: View, x: View) -> Value:
        if x.dtype.bits == y.dtype.bits:
            return reinterpret_bits(g, x.value, x.dtype, y.dtype)
        source, target = (_UNSIGNED[dtype.bits] for dtype in (x.dtype, y.dtype))
        unsigned = reinterpret_bits(g, x.value, x.dtype, source)
        convert = _split_words if x.dtype.bits > y.dtype.bits else _join_words
        return reinterpret_bits(g, convert(g, unsigned, source, target), target, y.dtype)

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        x, dtype = np.ascontiguousarray(inputs[0]), np.dtype(self.output.dtype.numpy)
        if x.dtype.itemsize < dtype.itemsize:
            return [x.view(dtype)[..., 0]]
        return [x.view(dtype) if x.dtype.itemsize == dtype.itemsize else x[..., None].view(dtype)]


class IsNegative(MadeOperator, Pointwise):
    """IS_NEGATIVE: whether the sign of each float is negative, also that of -0.

    With `zeros_only`, the result is read for zeros only. `fuse_bits` creates this operator.

    Division tells -0 from 0, as 1 / -0 is -inf. Comparisons with NaN are false, whatever its sign
    bit is; from opset 26 on, BitCast reads this bit.
    """

    codes = ("IS_NEGATIVE",)
    operands = "float16|float32|float64 -> bool"

    def emit(self, g: Builder, y: View, x: View) -> Value:
        dtype = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
        wide = g.recast(x, x.dtype, dtype)
        zero = g.scalar(0, dtype)
        zeros_only = self.op.read_made(SignOptions).zeros_only
        if g.opset >= find_first_opset("BitCast") and not zeros_only:
            bits = DType.INT64 if dtype is DType.FLOAT64 else DType.INT32
            return g.Less(reinterpret_bits(g, wide, dtype, bits), g.scalar(0, bits))
        of_zeros = g.Less(g.Div(g.scalar(1, dtype), wide), zero)
        return of_zeros if zeros_only else g.Or(g.Less(wide, zero), of_zeros)


def reinterpret_bits(g: Builder, x: Value, source: DType, target: DType) -> Value:
    """Return the bits of a value as elements of another type of the same size."""
    if source is target:
        return x
    if source.is_float or target.is_float:
        return g.BitCast(x, to=require_onnx_type(target))
    return g.cast(x, target)


def split_words(g: Builder, x: Value, dtype: DType, bits: int) -> Value:
    """Return words of so many bits as uint64; the words of an element are the last axis."""
    unsigned = _UNSIGNED[dtype.bits]
    words = _split_words(g, reinterpret_bits(g, x, dtype, unsigned), unsigned, _UNSIGNED[bits])
    return g.cast(words, DType.UINT64)


def _list_shifts(source: DType, narrow: DType) -> Array:
    return np.arange(0, source.bits, narrow.bits, dtype=np.uint64)


def _split_words(g: Builder, words: Value, dtype: DType, narrow: DType) -> Value:
    """Return the parts of each word, lowest first, as an additional last axis."""
    column = g.Unsqueeze(g.recast(words, dtype, DType.UINT64), [-1])
    return g.cast(g.BitShift(column, _list_shifts(dtype, narrow), direction="RIGHT"), narrow)


def _join_words(g: Builder, parts: Value, narrow: DType, wide: DType) -> Value:
    """Return words from their parts, which are along the last axis, the lowest first."""
    shifts = _list_shifts(wide, narrow)
    shifted = g.BitShift(g.cast(parts, DType.UINT64), shifts, direction="LEFT")
    words = [g.Gather(shifted, i, axis=-1) for i in range(len(shifts))]
    while len(words) > 1:
        words = [g.Add(a, b) for a, b in zip(words[::2], words[1::2], strict=True)]
    return g.recast(words[0], DType.UINT64, wide)
