"""TensorFlow's stateless random operators: each number is a function of a key and a counter.

Block i of four 32-bit words is counter + i, encrypted by Philox. The numbers are made of the words
in sequence, as on TensorFlow's CPU kernels: integers and uniform numbers are equal bit for bit. The
functions of normal numbers (log, sin, cos) may round differently.

A truncated normal number is the next normal number between -2 and 2. The kernel reserves 64 blocks
for each number. Of the blocks of a group of numbers 8 are tried: the probability that they do not
suffice is below 1e-18.
"""

from collections.abc import Sequence
from math import tau
from typing import ClassVar

import numpy as np

from tflite2onnx.contrib.random.encryption import (
    encrypt_with_philox,
    join_halves,
    split_halves,
    stack_words,
)
from tflite2onnx.operators import (
    AnySizes,
    Builder,
    DType,
    OperatorError,
    OutputShape,
    UnsignedInt,
    Value,
    View,
    integer,
    ints,
    read_shape,
)
from tflite2onnx.sizes import multiply_sizes

_ALGORITHMS = (1, 3)  # Philox, and the kernel's choice, which is Philox on a CPU
_SEED_KEY = 0x3EC8F720, 0x02461E29
_TRIED, _RESERVED = 8, 64
# A uniform number is an integer of so many random bits, divided by their number of values.
_BITS = {DType.FLOAT16: 10, DType.FLOAT32: 23, DType.FLOAT64: 52}
_LEAST = 1e-7  # the kernel takes no logarithm of a smaller number
_I32, _I64, _U32, _U64 = DType.INT32, DType.INT64, DType.UINT32, DType.UINT64
_F32, _F64 = DType.FLOAT32, DType.FLOAT64

_Words = Sequence[UnsignedInt]


def _take(g: Builder, x: Value, index: int, axis: int = 0) -> Value:
    return g.Slice(x, [index], [index + 1], [axis])


class FlexStatelessKey(AnySizes):
    """FlexStatelessRandomGetKeyCounter: a key and a counter, which are an encrypted seed."""

    codes = ("FlexStatelessRandomGetKeyCounter",)
    operands = "index [2] -> uint64 [1], uint64 [2]"

    def emit(self, g: Builder, ys: tuple[View, ...], seed: View) -> tuple[Value, ...]:
        wide = g.cast(g.recast(seed, seed.dtype, _I64), _U64)
        low, high = (split_halves(UnsignedInt(g, _take(g, wide, i), _U64)) for i in range(2))
        first, second = (UnsignedInt(g, g.scalar(number, _U32), _U32) for number in _SEED_KEY)
        words = encrypt_with_philox((first, second), (*low, *high))
        zero = g.constant(np.zeros(1, np.uint64))
        counter = g.Concat(zero, join_halves(*words[2:]).value, axis=0)
        return join_halves(*words[:2]).value, counter


class _StatelessDraw(AnySizes):
    """Base of operators with a shape, a key, a counter and the number of an algorithm."""

    shape_inputs = (0,)

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [read_shape(self, 0)]

    def check(self) -> None:
        if (number := integer(self, 3)) not in _ALGORITHMS:
            raise OperatorError(
                f"its algorithm must be Philox (1) or the kernel's choice (3), got {number}"
            )
        sizes = [] if self.input(0).data is None else ints(self, 0)
        if min(sizes, default=0) < 0:
            raise OperatorError(f"its shape must be non-negative sizes, got {sizes}")

    @property
    def _per_block(self) -> int:
        return 128 // max(self.output.dtype.bits, 32)

    def emit(
        self, g: Builder, y: View, sizes: View, key: View, counter: View, _: View, *bounds: View
    ) -> Value:
        shape = g.as_int64_list(sizes)
        number = multiply_sizes(g, shape)
        most = g.Add(number, [self._per_block - 1])
        blocks = g.reshape(g.Div(most, [self._per_block]), [])
        groups = g.cast(g.Range(0, blocks, 1), _U64)
        flat = self._draw(g, groups, key.value, counter.value, *(b.value for b in bounds))
        return g.reshape_to_sizes(g.Slice(flat, [0], number, [0]), shape)

    def _draw(self, g: Builder, groups: Value, key: Value, counter: Value, *bounds: Value) -> Value:
        """Return a vector of numbers, for whole groups of as many numbers as a block makes."""
        low, high = (UnsignedInt(g, _take(g, counter, i), _U64) for i in range(2))
        moved = low + UnsignedInt(g, self._number_blocks(g, groups), _U64)
        # The low half has overflowed if its highest bit has become 0.
        carry = (low >> 63) * ((moved >> 63) ^ 1)
        words = (*split_halves(moved), *split_halves(high + carry))
        blocks = encrypt_with_philox(split_halves(UnsignedInt(g, key, _U64)), words)
        return g.reshape(self._make_numbers(g, blocks, *bounds), [-1])

    def _number_blocks(self, _: Builder, groups: Value) -> Value:
        return groups

    def _make_numbers(self, g: Builder, words: _Words, *bounds: Value) -> Value:
        raise NotImplementedError


class FlexStatelessIntegers(_StatelessDraw):
    """TensorFlow's stateless random integers, in a range or of all bits."""

    codes = ("FlexStatelessRandomUniformFullIntV2", "FlexStatelessRandomUniformIntV2")
    operands = (
        "index [axes], uint64 [1], uint64 [2], int32 [], T:int32|int64|uint32|uint64? [], T? [] "
        "-> T"
    )

    def check(self) -> None:
        super().check()
        if self._limits and not self._limits[0] < self._limits[1]:
            raise OperatorError(f"its minval must be less than its maxval, got {self._limits}")

    @property
    def _limits(self) -> list[int]:
        """The bounds, empty if there are none, or if they are computed."""
        tensors = self.op.inputs[4:]
        known = all(t is not None and t.data is not None for t in tensors)
        return [integer(self, 4 + i) for i in range(len(tensors))] if known else []

    def _make_numbers(self, g: Builder, words: _Words, *bounds: Value) -> Value:
        dtype, unsigned = self.output.dtype, _U32
        if self._per_block == 2:
            words, unsigned = [join_halves(*words[:2]), join_halves(*words[2:])], _U64
        bits = stack_words(g, words).value
        if bounds:
            low, high = (g.recast(bound, dtype, unsigned) for bound in bounds)
            span = g.Sub(high, low)
            if not self._limits:  # a division by 0 would end the program
                span = g.Max(span, g.scalar(1, unsigned))
            bits = g.Add(low, g.Mod(bits, span))
        return g.recast(bits, unsigned, dtype)


class FlexStatelessFloats(_StatelessDraw):
    """TensorFlow's stateless random floats: uniform, normal, and normal between -2 and 2."""

    rows: ClassVar[dict[str, str]] = {
        "FlexStatelessRandomUniformV2": "uniform",
        "FlexStatelessRandomNormalV2": "normal",
        "FlexStatelessTruncatedNormalV2": "truncated",
    }
    operands = "index [axes], uint64 [1], uint64 [2], int32 [] -> float32|float16|float64"

    def _number_blocks(self, g: Builder, groups: Value) -> Value:
        if self.row != "truncated":
            return groups
        first = g.Mul(groups, g.scalar(_RESERVED * self._per_block, _U64))
        tried = g.constant(np.arange(_TRIED, dtype=np.uint64))
        return g.reshape(g.Add(g.Unsqueeze(first, [1]), tried), [-1])

    def _make_numbers(self, g: Builder, words: _Words, *_: Value) -> Value:
        dtype = self.output.dtype
        if self.row == "uniform":
            return g.recast(self._make_uniform(g, words, dtype), _widen(dtype), dtype)
        computed = _widen(dtype)
        numbers = self._make_normal(g, self._make_uniform(g, words, computed), computed)
        if self.row == "truncated":
            numbers = self._truncate(g, numbers, computed)
        return g.recast(numbers, computed, dtype)

    def _make_uniform(self, g: Builder, words: _Words, dtype: DType) -> Value:
        """Return numbers from 0 to 1, in columns, of as many bits as the fraction of `dtype`."""
        bits, computed = _BITS[dtype], _widen(dtype)
        if dtype is not _F64:
            integers = stack_words(g, words) & (1 << bits) - 1
            return g.Mul(g.cast(integers.value, computed), g.scalar(2.0**-bits, computed))
        high, low = stack_words(g, words[::2]) & (1 << bits - 32) - 1, stack_words(g, words[1::2])
        parts = (
            g.Mul(g.cast(part.value, _F64), g.scalar(2.0**-places, _F64))
            for part, places in ((high, bits - 32), (low, bits))
        )
        return g.Add(*parts)

    def _make_normal(self, g: Builder, uniform: Value, dtype: DType) -> Value:
        """Return normal numbers, in pairs, of pairs of uniform numbers, by Box and Muller."""
        pairs = g.reshape(uniform, [-1, 2])
        first, second = (_take(g, pairs, i, axis=1) for i in range(2))
        logarithm = g.Log(g.Max(first, g.scalar(_LEAST, dtype)))
        radius = g.Sqrt(g.Mul(logarithm, g.scalar(-2, dtype)))
        # The kernel multiplies by 2 pi in float64 for each type.
        angle = g.Mul(g.recast(second, dtype, _F64), g.scalar(tau, _F64))
        angle = g.recast(angle, _F64, dtype)
        functions = (g.add_with_casts(name, dtype, angle) for name in ("Sin", "Cos"))
        return g.Concat(*(g.Mul(each, radius) for each in functions), axis=1)

    def _truncate(self, g: Builder, numbers: Value, dtype: DType) -> Value:
        """Return the first numbers between -2 and 2 of each group."""
        groups = g.reshape(numbers, [-1, _TRIED * self._per_block])
        is_small = g.cast(g.Less(g.Abs(groups), g.scalar(2, dtype)), _I32)
        ranks = g.Unsqueeze(g.CumSum(is_small, 1), [1])
        # Numbers outside of the limits have the rank of the one before; ArgMax finds the first.
        wanted = np.arange(1, self._per_block + 1, dtype=np.int32).reshape(-1, 1)
        places = g.cast(g.Equal(ranks, g.constant(wanted)), _I32)
        return g.GatherElements(groups, g.ArgMax(places, axis=2, keepdims=0), axis=1)


def _widen(dtype: DType) -> DType:
    """Return the type in which numbers of a type are computed."""
    return _F32 if dtype is DType.FLOAT16 else dtype
