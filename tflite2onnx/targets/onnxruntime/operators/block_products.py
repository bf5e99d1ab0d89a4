"""Products of float rows by int4 weights that have a scale for each block of a row.

XNNPACK, LiteRT's default, quantizes each row of data to 256 steps, adds the products of integers of
each block in int32, and multiplies the sums by the scales of the blocks, which it rounds to
bfloat16 (qd8_f32_qb4w). MatMulNBits has two kernels for these weights:

- accuracy level 1 multiplies float data. Rows that are rounded to the 256 steps have LiteRT's
  product. It is the faster level for many rows.
- accuracy level 4 quantizes each block of data around 0, so that the largest number of a block
  becomes 127, and multiplies integers. For one row it takes a third of the time, but rounds again.

Level 4 rounds nothing if the largest integer of each block is 127. So one row becomes the sum of
two rows. The integers of a row, less their zero point, are -255 to 255. The first row has them, or
127 and -127 if they are beyond; the second row has the rest. Two integers of each block have other
parts, so that each row has 127 or -127 in each block: the first integer has this part in the second
row, the second integer in the first row. 255 has no two such parts. Only a row of one sign has it,
whose zero point is 0 or 255. That becomes 1 or 254, and the sums of the weights are added.

An offset of 127 in both rows would be simpler, but the product would be the difference of large
numbers: rows of an activation, most of whose numbers are near 0, had errors of 5e-5 to 1.4e-4 of
1/255 of the range, and have 2e-6, where LiteRT has 3e-6 to 1e-5. Each error lets as many numbers in
a million round to another integer in the next product. Rows of one sign without numbers near 0 have
larger errors than other rows: 8e-7 to 4e-6 of the range for 512 to 2,048 features, in place of 4e-8
to 3e-7.

On ARM64 with dot product, level 4 quantizes rows, not blocks, to 256 steps that include 0. There
the first row has all integers, in 255 steps, and the second is 0. A small product finds out at run
time what level 4 does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tflite2onnx.builder.builder import Body, Builder, Value, View
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.op.common.hybrid import quantize_asymmetric
from tflite2onnx.targets.onnxruntime.costs import CACHED
from tflite2onnx.tensor import Array, DType, Quantization, Tensor
from tflite2onnx.utils.mapped_files import read_rows, release_memory

_DOMAIN = "com.microsoft"
_BLOCKS = (16, 32, 64, 128, 256)  # the sizes that MatMulNBits takes
_FLOATS, _INTEGERS = 1, 4  # accuracy levels
_LARGEST = 127
_BEYOND = 255  # the largest difference of two integers of 8 bits
# The least numbers of features and of weights for which one row becomes two rows of integers. With
# fewer features the stored sums would add more than 1.5 % to the weights.
_LEAST_FEATURES, _WORTHWHILE = 512, 1 << 16
# The least numbers of features and of weights with a scale for each output that become blocks.
_LEAST_CHANNEL_FEATURES, _LEAST_CHANNEL_WEIGHTS = 1024, 1 << 19
_MATRIX = 2  # axes
_ROWS = [[1], [0]]  # the first of two rows
_SIGN_BITS = np.array(0x88, np.uint8)  # of the two elements in a byte


def has_blocks(g: Builder, weights: Tensor) -> bool:
    """Return whether MatMulNBits takes constant weights.

    ONNX Runtime folds BitwiseXor of the weights and Cast of the scales at load. If it may not
    optimize a model, it multiplies floats: from weights that are constant, and scales that are not,
    level 4 would compute wrong numbers.
    """
    scales = weights.quantization
    return scales is not None and scales.block_size in _BLOCKS and _is_packed(g, weights)


def has_channels(g: Builder, weights: Tensor) -> bool:
    """Return whether weights with a scale for each output are faster in blocks, for one row.

    The integer kernel would multiply int8, twice the bytes. All weights of a decoder are read from
    memory in a step: a step of a Qwen3 of 4 layers of 1,024 numbers takes 0.54 of the time, and
    0.89 with AVX2; 36 products of 1,024 numbers take 0.68, and 1.09. If a cache has the weights, as
    of ten products, they take 1.05, and 1.8 (AMD EPYC, family 25, model 17; hide_avx512.py).
    """
    scales = weights.quantization
    return (
        scales is not None
        and not scales.block_size
        and weights.elements >= _LEAST_CHANNEL_WEIGHTS
        and g.budget.stored >= CACHED  # a byte for each weight
        and weights.shape[-1] >= _LEAST_CHANNEL_FEATURES
        and weights.shape[-1] % min(_BLOCKS) == 0
        and _is_packed(g, weights)
    )


def _is_packed(g: Builder, weights: Tensor) -> bool:
    """Return whether weights are a constant matrix of int4, and nodes can store them plus 8."""
    scales = weights.quantization
    return (
        scales is not None
        and weights.data is not None
        and weights.dtype is DType.INT4
        and weights.rank == _MATRIX
        and not scales.zero_point.any()
        # The last condition: it raises the opset of a model that does not have it.
        and g.supports(find_first_opset("BitwiseXor"), "BitwiseXor")
    )


class _PackedWeights(NamedTuple):
    """The operands of MatMulNBits: packed integers, and scales."""

    integers: Value
    scales: Value
    outputs: int
    features: int
    block_size: int

    def multiply(self, g: Builder, rows: Value, level: int) -> Value:
        """Return the product of rows, [rows, features], at an accuracy level."""
        return g.node(
            "MatMulNBits",
            *(rows, self.integers, self.scales),
            domain=_DOMAIN,
            K=self.features,
            N=self.outputs,
            bits=4,
            block_size=self.block_size,
            accuracy_level=level,
        )


class _PairedRow(NamedTuple):
    """A row as two rows of integers that level 4 does not round.

    The product of the row is the products of both times `scales`, [1, 2], plus `offset` times the
    sum of each output's weights.
    """

    rows: Value
    scales: Value
    offset: Value

    def multiply(self, g: Builder, weights: _PackedWeights, sums: Value) -> Value:
        """Return the product of the row, [1, outputs]."""
        products = weights.multiply(g, self.rows, _INTEGERS)
        return g.Gemm(self.scales, products, g.Mul(self.offset, sums))


class _RowParts(NamedTuple):
    """What makes two rows of integers of one row, which depends on the kernel of level 4.

    The nearest part of each number is the number times `factors`, plus `offsets`, within `limits`.
    `is_nearest` says where a row has this part; elsewhere it has the rest. `zeros` are the least
    and the largest zero point, uint8. The shapes of the last three broadcast to [2, features].
    """

    zeros: tuple[Value, Value]
    limits: tuple[Value, Value]
    factors: Value
    offsets: Value
    is_nearest: Value

    @classmethod
    def find(cls, g: Builder, weights: _PackedWeights) -> "_RowParts":
        """Return the parts for kernels that quantize blocks, or rows: there all is one part."""
        place = np.arange(weights.features) % weights.block_size
        is_shared, is_first = place < len(_ROWS), place == 0
        # The sign of a number times 254, plus 127, is that of the number; 0 is positive.
        factors = np.where(is_shared, 2 * _LARGEST, 1)
        offsets = np.where(is_shared, _LARGEST, 0)
        nearest = np.stack([~is_first, is_first])
        integer, real = DType.UINT8, DType.FLOAT32
        return cls(
            (_choose(g, 0, 1, integer), _choose(g, _BEYOND, _BEYOND - 1, integer)),
            (_choose(g, -_BEYOND, -_LARGEST, real), _choose(g, _BEYOND, _LARGEST, real)),
            _choose(g, [[1]], factors[None], real),
            _choose(g, [[0]], offsets[None], real),
            # ONNX Runtime has no Where of bool.
            g.cast(_choose(g, _ROWS, nearest, integer), DType.BOOL),
        )


def _choose(g: Builder, for_rows: ArrayLike, for_blocks: ArrayLike, dtype: DType) -> Value:
    """Return the array for kernels of level 4 that quantize rows, or that for blocks."""
    arrays = (g.constant(np.asarray(each, dtype.numpy)) for each in (for_rows, for_blocks))
    return g.Where(g.share(_rounds_rows), *arrays)


def multiply_blocks(g: Builder, rows: Value, count: int | str, w: View, *, rounds: bool) -> Value:
    """Return rows, float32 [count, features], times weights with blocks, [count, outputs].

    Scales of outputs multiply the product, because KleidiAI, on ARM64 with dot product, rounds the
    scales of blocks to bfloat16. `rounds` is set if LiteRT does that, too. The number of rows may
    be dynamic. A single row may have more axes.
    """
    scales = _find_scales(w, rounds=rounds)
    weights = _store_weights(g, w, scales)
    few = weights.features < _LEAST_FEATURES or w.tensor.elements < _WORTHWHILE
    if few or (count != 1 and isinstance(count, int)):
        quantized = quantize_asymmetric(g, rows, _MATRIX, is_one=count == 1)
        return weights.multiply(g, quantized.dequantize(g), _FLOATS)
    sums = g.constant(_sum_outputs(w, _find_factors(w, scales)))
    parts = _RowParts.find(g, weights)
    if count == 1:
        product = _pair_row(g, rows, weights.features, parts).multiply(g, weights, sums)
        if not scales.block_size:
            product = g.Mul(product, g.constant(scales.scale.reshape(1, -1)))
        axes = g.types[rows][1][:-1]
        return product if len(axes) == 1 else g.reshape(product, (*axes, weights.outputs))
    # Products of the same rows have the first If in common (`merge_equal_nodes`).
    single = g.Equal(g.Shape(rows, start=0, end=1), [1])
    one, several = g.make_nested(), g.make_nested()
    quantized = quantize_asymmetric(several, rows, _MATRIX, is_one=False)
    made = _branch(
        *(g, single, one, _pair_row(one, rows, weights.features, parts)),
        # The scale is not read.
        *(several, (quantized.dequantize(several), quantized.scale, quantized.scale)),
    )
    one, several = g.make_nested(), g.make_nested()
    row = _PairedRow(*made).multiply(one, weights, sums)
    (product,) = _branch(
        g, single, one, [row], several, [weights.multiply(several, made[0], _FLOATS)]
    )
    return product


def _branch(
    g: Builder, single: Value,
    one: Builder, of_one: Sequence[Value], several: Builder, of_several: Sequence[Value],
) -> Sequence[Value]:  # fmt: skip
    """Return the values of one row, or of several rows."""
    return g.node_outputs(
        "If",
        len(of_one),
        single,
        then_branch=Body("one_row", (), tuple(one.nodes), tuple(of_one), ()),
        else_branch=Body("several_rows", (), tuple(several.nodes), tuple(of_several), ()),
    )


def _pair_row(g: Builder, row: Value, features: int, parts: _RowParts) -> _PairedRow:
    """Return a row as two rows, which level 4 does not round."""
    integers, scale, zero = g.node_outputs("DynamicQuantizeLinear", 3, row)
    # The zero point of a row of zeros stays 0: its two rows have opposite signs.
    highest = g.reduce("ReduceMax", integers, None, keepdims=False)
    least, most = parts.zeros
    moved = g.Clip(zero, g.Clip(highest, None, least), most)
    one = g.scalar(1, DType.FLOAT32)
    # ONNX Runtime would repeat a DequantizeLinear for each of its readers, but not a Reshape.
    numbers = g.reshape(g.DequantizeLinear(integers, one, moved), (1, features))
    nearest = g.Clip(g.Add(g.Mul(numbers, parts.factors), parts.offsets), *parts.limits)
    rows = g.Where(parts.is_nearest, nearest, g.Sub(numbers, nearest))
    scales = g.Mul(scale, g.constant(np.ones((1, 2), np.float32)))
    return _PairedRow(rows, scales, g.DequantizeLinear(moved, scale, zero))


def _rounds_rows(g: Builder) -> Value:
    """Return whether level 4 quantizes rows, a scalar.

    The product is a 1 beside 127 and -127, which 256 steps represent as 0.996. ONNX Runtime does
    not fold the DequantizeLinear; it would fold the product by another kernel.
    """
    size = 32
    integers = np.full((1, size), _LARGEST, np.uint8)
    integers[0, :3] = _LARGEST + 1, 2 * _LARGEST, 0
    row = g.DequantizeLinear(
        g.constant(integers), g.scalar(1, DType.FLOAT32), g.scalar(_LARGEST, DType.UINT8)
    )
    packed = np.full((1, 1, size // 2), _SIGN_BITS, np.uint8)
    packed[0, 0, 0] += 1
    weights = _PackedWeights(g.constant(packed), g.constant(np.ones(1, np.float32)), 1, size, size)
    product = g.reshape(weights.multiply(g, row, _INTEGERS), ())
    return g.Less(product, g.scalar(0.998, DType.FLOAT32))


def _store_weights(g: Builder, w: View, scales: Quantization) -> _PackedWeights:
    outputs, features = w.tensor.shape
    size = scales.block_size or next(n for n in reversed(_BLOCKS) if features % n == 0)
    blocks = g.Reshape(g.pack_bytes(w), [outputs, -1, size // 2])
    if scales.block_size:
        stored = g.constant(scales.stored_scale)
        factors = g.cast(stored, DType.FLOAT32) if stored.dtype is DType.FLOAT16 else stored
    else:
        factors = g.Expand(g.scalar(1, DType.FLOAT32), [outputs, features // size])
    # The node reads elements plus 8.
    integers = g.BitwiseXor(blocks, g.constant(_SIGN_BITS))
    return _PackedWeights(integers, factors, outputs, features, size)


def _find_factors(w: View, scales: Quantization) -> Array:
    """Return the scales of blocks, [outputs, blocks]; ones, [outputs, 1], if there are none."""
    return scales.scale if scales.block_size else np.ones((w.tensor.shape[0], 1), np.float32)


def _find_scales(w: View, *, rounds: bool) -> Quantization:
    """Return the scales, rounded to bfloat16 if `rounds`."""
    scales = w.tensor.quantization
    assert scales is not None  # noqa: S101 - `has_blocks`
    parts = read_rows(scales.scale)
    if not (rounds and scales.block_size) or all(
        np.array_equal(_round_to_bfloat16(part), part) for part in parts
    ):
        return scales
    return scales.with_scale(_round_to_bfloat16(scales.scale), scales.zero_point)


def _sum_outputs(w: View, scales: Array) -> Array:
    """Return the sum of the real weights of each output, float32 [1, outputs]."""
    sums = list[Array]()
    for part in read_rows(w.constant):
        factors = scales[len(sums) : len(sums) + len(part)].astype(np.float64)
        blocks = part.reshape(*factors.shape, -1).sum(2, dtype=np.int64)
        sums.extend((blocks * factors).sum(1))
    release_memory(scales)
    return np.asarray(sums, np.float32).reshape(1, -1)


def _round_to_bfloat16(numbers: Array) -> Array:
    """Return float32 numbers rounded to the nearest of 8 bits, halves to even."""
    bits = numbers.astype(np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.asarray((rounded << np.uint32(16)).view(np.float32))
